#include "scheme/scheme.h"

#include <algorithm>
#include <array>

#include "base/counts.h"
#include "base/error.h"
#include "base/text.h"

namespace adjoint {

std::string to_string(const Source& source) {
  return source.facet.empty() ? source.path : source.path + ":" + source.facet;
}

Source with_facet(const Source& source, std::string_view more) {
  const std::string dot = source.facet.empty() ? "" : ".";
  return {source.path, source.facet + dot + std::string(more)};
}

namespace {
constexpr std::array<std::string_view, 7> kRoles = {"input",      "parameter", "state", "control",
                                                    "activation", "gradient",  "metric"};
}  // namespace

std::string_view name(Role role) { return kRoles[static_cast<size_t>(role)]; }

std::optional<Role> role_named(std::string_view name) {
  for (size_t i = 0; i < kRoles.size(); ++i) {
    if (kRoles[i] == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

std::string_view name(Phase phase) {
  constexpr std::string_view names[] = {"forward", "backward", "update"};
  return names[static_cast<size_t>(phase)];
}

std::string_view name(Section section) {
  constexpr std::string_view names[] = {"prologue", "body", "epilogue"};
  return names[static_cast<size_t>(section)];
}

std::string to_string(const Init& init) {
  switch (init.kind) {
    case Init::Kind::kZeros:
      return "zeros";
    case Init::Kind::kOnes:
      return "ones";
    case Init::Kind::kNormal:
      return "normal(" + shortest(init.scale) + ")";
    case Init::Kind::kUniform:
      return "uniform(" + shortest(init.scale) + ")";
    case Init::Kind::kConstant:
      return "constant(" + shortest(init.scale) + ")";
  }
  return "";
}

std::string to_string(const Attr& attr) {
  if (const auto* integer = std::get_if<int64_t>(&attr)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&attr)) {
    const std::string text = shortest(*real);  // a point or exponent tells it from an integer
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  if (const auto* word = std::get_if<std::string>(&attr)) return "\"" + *word + "\"";
  std::string out = "[";
  for (const int64_t n : std::get<std::vector<int64_t>>(attr)) {
    out += (out.size() > 1 ? ", " : "") + std::to_string(n);
  }
  return out + "]";
}

Value Scheme::add(Object object) {
  objects.push_back(std::move(object));
  return static_cast<Value>(objects.size() - 1);
}

Value Scheme::add_input(Object object) {
  inputs.push_back(add(std::move(object)));
  return inputs.back();
}

std::optional<Value> Scheme::find(const Source& source) const {
  for (size_t i = 0; i < objects.size(); ++i) {
    if (objects[i].source == source) return static_cast<Value>(i);
  }
  return std::nullopt;
}

int mesh_size(const std::vector<MeshAxis>& mesh, std::string_view axis) {
  for (const MeshAxis& a : mesh) {
    if (a.name == axis) return a.size;
  }
  return 1;
}

int num_ranks(const std::vector<MeshAxis>& mesh) {
  int ranks = 1;
  for (const MeshAxis& a : mesh) ranks *= a.size;
  return ranks;
}

const Placement* placement_over(const Object& object, std::string_view mesh_axis) {
  for (const Placement& p : object.attributes.placement) {
    if (p.mesh_axis == mesh_axis) return &p;
  }
  return nullptr;
}

std::vector<int> producers(const Scheme& scheme) {
  std::vector<int> made_by(scheme.objects.size(), -1);
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    for (const Value out : scheme.morphisms[i].outputs) made_by[out] = static_cast<int>(i);
  }
  return made_by;
}

std::vector<std::vector<int>> readers(const Scheme& scheme) {
  std::vector<std::vector<int>> read_by(scheme.objects.size());
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    for (const Value in : scheme.morphisms[i].inputs) {
      if (read_by[in].empty() || read_by[in].back() != static_cast<int>(i)) {
        read_by[in].push_back(static_cast<int>(i));
      }
    }
  }
  return read_by;
}

std::vector<bool> returned_or_carried(const Scheme& scheme) {
  std::vector<bool> stays(scheme.objects.size(), false);
  for (const Value out : scheme.outputs) stays[out] = true;
  for (const std::vector<Carry>* carries : {&scheme.carries, &scheme.loop}) {
    for (const Carry& c : *carries) stays[c.in] = stays[c.out] = true;
  }
  return stays;
}

namespace {

// Copies `from` into `into`; `known` maps objects that are already there.
std::vector<Value> copy_into(Scheme& into, const Scheme& from, std::map<Value, Value> known) {
  std::vector<Value> renamed(from.objects.size());
  for (size_t v = 0; v < from.objects.size(); ++v) {
    const auto found = known.find(static_cast<Value>(v));
    renamed[v] = found != known.end() ? found->second : into.add(from.objects[v]);
  }
  for (const Value in : from.inputs) {
    if (!known.count(in)) into.inputs.push_back(renamed[in]);
  }
  for (Morphism m : from.morphisms) {
    for (Value& v : m.inputs) v = renamed[v];
    for (Value& v : m.outputs) v = renamed[v];
    for (Value& v : m.after) v = renamed[v];
    into.morphisms.push_back(std::move(m));
  }
  for (const Carry& c : from.carries) into.carries.push_back({renamed[c.in], renamed[c.out]});
  for (const Carry& c : from.loop) into.loop.push_back({renamed[c.in], renamed[c.out]});
  into.parts = std::max(into.parts, from.parts);
  return renamed;
}

// Parameters and control that both schemes name by one source are one object.
std::map<Value, Value> shared_inputs(const Scheme& into, const Scheme& from) {
  std::map<Value, Value> known;
  for (const Value in : from.inputs) {
    if (from[in].role == Role::kInput || from[in].role == Role::kActivation) continue;
    for (const Value other : into.inputs) {
      if (into[other].source != from[in].source) continue;
      if (into[other].type != from[in].type) {
        fail("compose: ", to_string(from[in].source), " is ", to_string(into[other].type),
             " in one and ", to_string(from[in].type), " in the other");
      }
      known[in] = other;
    }
  }
  return known;
}

}  // namespace

Scheme compose(const Scheme& f, const Scheme& g) {
  if (g.inputs.size() < f.outputs.size()) {
    fail("compose: ", f.name, " gives ", counted(static_cast<int64_t>(f.outputs.size()), "object"),
         ", ", g.name, " takes ", g.inputs.size());
  }
  Scheme result;
  const std::vector<Value> from_f = copy_into(result, f, {});
  std::map<Value, Value> known = shared_inputs(result, g);
  for (size_t i = 0; i < f.outputs.size(); ++i) {
    const Value mine = f.outputs[i], yours = g.inputs[i];
    if (!same_shape(f[mine].type, g[yours].type) || f[mine].type.dtype != g[yours].type.dtype) {
      fail("compose: output ", i, " of ", f.name, " is ", to_string(f[mine].type), ", input ", i,
           " of ", g.name, " wants ", to_string(g[yours].type));
    }
    known[yours] = from_f[mine];
  }
  const std::vector<Value> from_g = copy_into(result, g, known);
  for (const Value out : g.outputs) result.outputs.push_back(from_g[out]);
  result.name = g.name + "." + f.name;
  return result;
}

Scheme product(const Scheme& f, const Scheme& g) {
  Scheme result;
  const std::vector<Value> from_f = copy_into(result, f, {});
  const std::vector<Value> from_g = copy_into(result, g, shared_inputs(result, g));
  for (const Value out : f.outputs) result.outputs.push_back(from_f[out]);
  for (const Value out : g.outputs) result.outputs.push_back(from_g[out]);
  result.name = f.name + "*" + g.name;
  return result;
}

Scheme without_morphisms(const Scheme& scheme) {
  return {.name = scheme.name,
          .objects = scheme.objects,
          .morphisms = {},
          .inputs = scheme.inputs,
          .outputs = scheme.outputs,
          .carries = scheme.carries,
          .mesh = scheme.mesh,
          .schedule = scheme.schedule,
          .chunks = scheme.chunks,
          .parts = scheme.parts,
          .loop = scheme.loop};
}

Scheme compact(Scheme scheme) {
  std::vector<bool> used(scheme.objects.size(), false);
  for (const Value in : scheme.inputs) used[in] = true;
  for (const Morphism& m : scheme.morphisms) {
    for (const Value out : m.outputs) used[out] = true;
  }
  if (std::find(used.begin(), used.end(), false) == used.end()) return scheme;
  std::vector<Value> renamed(scheme.objects.size(), -1);
  Value next = 0;
  for (size_t v = 0; v < used.size(); ++v) {
    if (!used[v]) continue;
    if (static_cast<size_t>(next) != v) scheme.objects[next] = std::move(scheme.objects[v]);
    renamed[v] = next++;
  }
  scheme.objects.erase(scheme.objects.begin() + next, scheme.objects.end());
  const auto rename = [&](std::vector<Value>& values) {
    for (Value& v : values) v = renamed[v];
  };
  rename(scheme.inputs);
  rename(scheme.outputs);
  for (Morphism& m : scheme.morphisms) {
    rename(m.inputs), rename(m.outputs), rename(m.after);
    std::erase(m.after, -1);  // what nobody makes holds nobody back
  }
  for (Carry& c : scheme.carries) c = {renamed[c.in], renamed[c.out]};
  for (Carry& c : scheme.loop) c = {renamed[c.in], renamed[c.out]};
  return scheme;
}

Scheme without_dead(Scheme scheme) {
  std::vector<bool> live(scheme.objects.size(), false);
  for (const Value out : scheme.outputs) live[out] = true;
  for (const Carry& c : scheme.carries) live[c.out] = true;
  for (const Carry& c : scheme.loop) live[c.in] = live[c.out] = true;
  // From the last on; what is needed moves to the end, and then there is no gap.
  size_t first = scheme.morphisms.size();
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    Morphism& m = scheme.morphisms[i];
    const auto needed = [&](Value out) { return live[out]; };
    if (std::none_of(m.outputs.begin(), m.outputs.end(), needed)) continue;
    for (const Value in : m.inputs) live[in] = true;
    if (--first != i) scheme.morphisms[first] = std::move(m);
  }
  scheme.morphisms.erase(scheme.morphisms.begin(),
                         scheme.morphisms.begin() + static_cast<ptrdiff_t>(first));
  return compact(std::move(scheme));
}

namespace {

// Only accumulators cross iterations: what the body makes is read after it only if the loop carries
// it, and what is carried is made once before the body and once in it.
void verify_loop(const Scheme& scheme) {
  if (scheme.parts == 1 && scheme.loop.empty()) return;
  CHECK(scheme.parts >= 1, "a step has at least one part");
  const std::vector<int> made_by = producers(scheme);
  const auto section_of = [&](Value v) {
    return made_by[v] < 0 ? Section::kPrologue : scheme.morphisms[made_by[v]].section;
  };
  std::vector<bool> carried(scheme.objects.size(), false), begins = carried;
  for (const Carry& c : scheme.loop) {
    const std::string what = to_string(scheme[c.in].source);
    CHECK(scheme[c.in].type == scheme[c.out].type, "an accumulator keeps its type: " + what);
    CHECK(section_of(c.in) == Section::kPrologue, "an accumulator begins before the body: " + what);
    CHECK(section_of(c.out) == Section::kBody, "an accumulator grows in the body: " + what);
    CHECK(!carried[c.in] && !carried[c.out], "an accumulator is carried once: " + what);
    carried[c.in] = carried[c.out] = begins[c.in] = true;
  }
  const auto check_read = [&](Value v) {
    CHECK(section_of(v) != Section::kBody || carried[v],
          "only accumulators leave the body: " + to_string(scheme[v].source));
  };
  for (const Morphism& m : scheme.morphisms) {
    if (m.section != Section::kEpilogue) continue;
    for (const Value in : m.inputs) {
      check_read(in);
      CHECK(!begins[in], "after the body an accumulator is no longer what it began as: " +
                             to_string(scheme[in].source));
    }
  }
  for (const Value out : scheme.outputs) check_read(out);
  for (const Carry& c : scheme.carries) check_read(c.out);
}

}  // namespace

void verify_structure(const Scheme& scheme) {
  const auto inside = [&](Value v) {
    return v >= 0 && v < static_cast<Value>(scheme.objects.size());
  };
  std::vector<bool> made(scheme.objects.size(), false);
  for (const Value in : scheme.inputs) {
    CHECK(inside(in), "an input is an object of the scheme");
    CHECK(!made[in], "an input is listed once: " + to_string(scheme[in].source));
    made[in] = true;
  }
  Section section = Section::kPrologue;
  for (const Morphism& m : scheme.morphisms) {
    const auto at = [&m](const char* claim) { return claim + m.op + " at " + to_string(m.source); };
    CHECK(m.section >= section, at("prologue, body and epilogue stand in this order: "));
    section = m.section;
    for (const Value in : m.inputs) {
      CHECK(inside(in), at("an operand is an object of the scheme: "));
      CHECK(made[in], at("an object is made before it is read: "));
    }
    for (const Value v : m.after) {
      CHECK(inside(v) && made[v], at("what a morphism waits for is made before it: "));
    }
    for (const Value out : m.outputs) {
      CHECK(inside(out), at("a result is an object of the scheme: "));
      CHECK(!made[out], at("an object is made once: "));
      made[out] = true;
    }
  }
  for (const Value out : scheme.outputs) CHECK(inside(out) && made[out], "an output is made");
  for (const Carry& c : scheme.carries) {
    CHECK(inside(c.in) && inside(c.out) && made[c.in] && made[c.out], "a carry's ends are made");
    CHECK(scheme[c.in].type == scheme[c.out].type,
          "state keeps its type: " + to_string(scheme[c.in].source));
  }
  verify_loop(scheme);
  for (const Object& object : scheme.objects) {
    CHECK(!object.source.path.empty(), "every object says where it came from");
    for (const Axis& axis : object.type.axes) {
      CHECK(axis.size > 0 && (axis.padded == 0 || axis.padded >= axis.size), "axes have sizes");
    }
  }
}

}  // namespace adjoint
