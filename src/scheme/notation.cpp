// The flat notation of a Scheme. One line per input, per morphism, and one each for what is carried
// over and returned:
//   parameter %1 wte.weight: f32[vocab=65, hidden=128] init=normal(0.02)
//   %7 block[0].qkv: f32[batch=4, seq=8, 3*hidden=384] = linear(%3, %1, %2) {k=1} @block[0].qkv
//   carry %1 -> %9
//   loop %3 -> %8        (an accumulator; the head then says `scheme name parts=4:`)
// The head of a scheme for several ranks says its mesh, and the schedule of its stages:
// `scheme name mesh data=2 stage=4 schedule "1f1b":`.
//   return %7
// Only what differs from the default is written; a morphism's line ends in what it is and waits
// for: `@block[0].up backward epoch=2 after %9`.
#include <cctype>
#include <charconv>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "scheme/cursor.h"
#include "scheme/scheme.h"

namespace adjoint {

namespace {

constexpr std::string_view kPathChars = ".[]#'+-*/^";

std::string ref(Value v) { return "%" + std::to_string(v); }

std::string refs(const std::vector<Value>& values) {
  std::vector<std::string> out;
  for (const Value v : values) out.push_back(ref(v));
  return join(out, ", ");
}

std::string print_placement(const Placement& p) {
  const char* spreads[] = {"replicated", "sharded", "partial"};
  std::string out = " place=" + p.mesh_axis + "/" + spreads[static_cast<int>(p.spread)];
  if (p.spread != Spread::kSharded) return out;
  out += "/" + std::to_string(p.axis);
  if (p.whole) out += "/" + std::to_string(p.whole);
  if (!p.segments.empty()) {
    std::vector<std::string> sizes;
    for (const int64_t size : p.segments) sizes.push_back(std::to_string(size));
    out += "[" + join(sizes, "|") + "]";
  }
  return p.home ? out + "/home" : out;
}

// %7 path:facet: type, then whatever is not the default.
std::string print_object(const Scheme& scheme, Value v, bool is_input) {
  const Object& o = scheme[v];
  std::string out = ref(v) + " " + to_string(o.source) + ": " + to_string(o.type);
  if (!is_input && o.role != Role::kActivation) out += " " + std::string(name(o.role));
  if (o.frozen) out += " frozen";
  if (o.init) out += " init=" + to_string(*o.init);
  const Attributes& a = o.attributes;
  if (!a.precision.empty()) out += " precision=\"" + a.precision + "\"";
  if (a.residence == Residence::kKept) out += " kept";
  if (a.residence == Residence::kRecomputed) out += " recomputed";
  if (a.residence == Residence::kApart) out += " apart";
  if (a.tier == Tier::kHost) out += " host";
  for (const Placement& p : a.placement) out += print_placement(p);
  if (a.stage) out += " stage=" + std::to_string(a.stage);
  if (a.use_by_use) out += " use_by_use";
  if (a.parts > 1) out += " parts=" + std::to_string(a.parts);
  const Training& t = a.training;
  if (t.rate) out += " rate=" + shortest(*t.rate);
  if (t.decay) out += " decay=" + shortest(*t.decay);
  if (!t.optimizer.empty()) out += " optimizer=" + t.optimizer;
  if (!t.clipped_as.empty()) out += " clipped=" + t.clipped_as;
  return out;
}

class FlatParser {
 public:
  FlatParser(std::string_view text, std::string_view file)
      : in_(text, file), most_objects_(static_cast<int64_t>(text.size())) {}

  Scheme parse() {
    in_.skip_blank_lines();
    if (!in_.accept_word("scheme")) in_.fail_wanted("'scheme' to begin a scheme");
    if (!in_.looking_at(":") && !in_.looking_at("parts=") && !in_.looking_at("mesh ")) {
      scheme_.name = in_.take_run(".-*", "the name of the scheme");
    }
    if (in_.accept_word("parts")) {
      in_.expect("=", "after 'parts'");
      scheme_.parts = small_integer("a number of parts");
    }
    if (in_.accept_word("mesh")) mesh();
    if (in_.accept_word("schedule")) {
      scheme_.schedule = in_.take_text();
      for (size_t at = 0; (at = scheme_.schedule.find("\\n", at)) != std::string::npos; ++at) {
        scheme_.schedule.replace(at, 2, "\n");
      }
      if (in_.accept_word("chunks")) {
        in_.expect("=", "after 'chunks'");
        scheme_.chunks = small_integer("a number of chunks");
      }
    }
    in_.expect(":", "after the name of the scheme");
    in_.expect_line_end();
    for (in_.skip_blank_lines(); !in_.at_end(); in_.skip_blank_lines()) line();
    for (size_t i = 0; i < written_.size(); ++i) {
      if (!written_[i]) in_.fail_at(in_.position(), "nothing defines %" + std::to_string(i));
    }
    return std::move(scheme_);
  }

 private:
  void mesh() {
    do {
      in_.skip_blank();
      const Position at = in_.position();
      MeshAxis axis{.name = in_.take_name("an axis of the mesh")};
      in_.expect("=", "after an axis of the mesh");
      axis.size = small_integer("a number of ranks");
      if (axis.size < 2) in_.fail_at(at, "wanted an axis of the mesh with at least 2 ranks");
      scheme_.mesh.push_back(std::move(axis));
      in_.skip_blank();
    } while (!in_.looking_at(":") && !in_.looking_at("schedule "));
  }

  void line() {
    const Position at = in_.position();
    if (in_.accept_word("carry")) {
      const Value from = use();
      in_.expect("->", "between what is carried and where");
      scheme_.carries.push_back({from, use()});
    } else if (in_.accept_word("loop")) {
      const Value from = use();
      in_.expect("->", "between an accumulator and what it becomes");
      scheme_.loop.push_back({from, use()});
    } else if (in_.accept_word("return")) {
      if (!in_.at_line_end()) scheme_.outputs = uses();
    } else if (in_.looking_at("%")) {
      morphism();
    } else {
      const std::string word = in_.take_name("a role, '%', 'carry' or 'return'");
      const auto role = role_named(word);
      if (!role) in_.fail_at(at, "wanted a role, '%', 'carry' or 'return', found '" + word + "'");
      const Value v = object();
      scheme_[v].role = *role;
      scheme_.inputs.push_back(v);
    }
    in_.expect_line_end();
  }

  void morphism() {
    Morphism m;
    do {
      m.outputs.push_back(object());
    } while (in_.accept(","));
    in_.expect("=", "after the objects that a morphism makes");
    m.op = in_.take_run(".", "the name of an op");
    in_.expect("(", "after the name of an op");
    if (!in_.looking_at(")")) m.inputs = uses();
    in_.expect(")", "after the operands");
    if (in_.accept("{")) attrs(m.attrs);
    in_.expect("@", "before the source of a morphism");
    m.source = source();
    if (in_.accept_word("backward")) m.phase = Phase::kBackward;
    if (in_.accept_word("update")) m.phase = Phase::kUpdate;
    if (in_.accept_word("epoch")) {
      in_.expect("=", "after 'epoch'");
      m.epoch = small_integer("an epoch");
    }
    if (in_.accept_word("prologue")) m.section = Section::kPrologue;
    if (in_.accept_word("epilogue")) m.section = Section::kEpilogue;
    if (in_.accept_word("slot")) {
      in_.expect("=", "after 'slot'");
      m.slot = small_integer("a slot");
    }
    if (in_.accept_word("after")) m.after = uses();
    scheme_.morphisms.push_back(std::move(m));
  }

  Value id() {
    in_.expect("%", "before the number of an object");
    const Position at = in_.position();
    const int64_t v = in_.take_integer("the number of an object");
    // Every object below the largest number is written somewhere, in several characters.
    if (v < 0 || v >= most_objects_) in_.fail_at(at, "nothing defines %" + std::to_string(v));
    if (static_cast<size_t>(v) >= scheme_.objects.size()) {
      scheme_.objects.resize(v + 1);
      written_.resize(v + 1);
    }
    return static_cast<Value>(v);
  }

  Value use() {
    in_.skip_blank();
    const Position at = in_.position();
    const Value v = id();
    if (!written_[v]) in_.fail_at(at, ref(v) + " is read before anything makes it");
    return v;
  }

  std::vector<Value> uses() {
    std::vector<Value> values;
    do {
      values.push_back(use());
    } while (in_.accept(","));
    return values;
  }

  Source source() {
    Source s;
    s.path = in_.take_run(kPathChars, "a source path");
    if (in_.peek() == ':' && in_.peek(1) != ' ') {
      in_.accept(":");
      s.facet = in_.take_run(kPathChars, "what of the source it is");
    }
    return s;
  }

  Value object() {
    in_.skip_blank();
    const Position at = in_.position();
    const Value v = id();
    if (written_[v]) in_.fail_at(at, ref(v) + " is made twice");
    Object o;
    o.source = source();
    in_.expect(":", "after the source of an object");
    o.type = type();
    qualifiers(o);
    scheme_[v] = std::move(o);
    written_[v] = true;
    return v;
  }

  Type type() {
    Type t;
    in_.skip_blank();
    const Position at = in_.position();
    const std::string word = in_.take_name("a dtype");
    const auto dtype = dtype_named(word);
    if (!dtype) in_.fail_at(at, "wanted a dtype, found '" + word + "'");
    t.dtype = *dtype;
    in_.expect("[", "after a dtype");
    if (in_.accept("]")) return t;
    do {
      Axis axis;
      axis.name = in_.take_run("*/+-.() ", "the name of an axis");
      in_.expect("=", "after the name of an axis");
      in_.skip_blank();
      const Position where = in_.position();
      axis.size = in_.take_integer("the size of an axis");
      if (in_.accept("~")) axis.padded = in_.take_integer("the padded size of an axis");
      if (axis.size < 1 || (axis.padded && axis.padded < axis.size)) {
        in_.fail_at(where, "wanted a size of at least 1, and padding that only adds");
      }
      t.axes.push_back(std::move(axis));
    } while (in_.accept(","));
    in_.expect("]", "after the axes");
    if (!is_countable(t)) in_.fail_at(at, to_string(t) + " has more bytes than can be counted");
    return t;
  }

  void qualifiers(Object& o) {
    Attributes& a = o.attributes;
    while (in_.at_name()) {
      const Position at = in_.position();
      const std::string word = in_.take_name("a qualifier");
      if (const auto role = role_named(word)) {
        o.role = *role;
      } else if (word == "frozen") {
        o.frozen = true;
      } else if (word == "kept") {
        a.residence = Residence::kKept;
      } else if (word == "recomputed") {
        a.residence = Residence::kRecomputed;
      } else if (word == "apart") {
        a.residence = Residence::kApart;
      } else if (word == "host") {
        a.tier = Tier::kHost;
      } else if (word == "parts") {
        in_.expect("=", "after 'parts'");
        a.parts = small_integer("a number of parts");
      } else if (word == "init") {
        in_.expect("=", "after 'init'");
        o.init = init();
      } else if (word == "precision") {
        in_.expect("=", "after 'precision'");
        a.precision = in_.take_text();
      } else if (word == "stage") {
        in_.expect("=", "after 'stage'");
        a.stage = small_integer("a stage");
      } else if (word == "use_by_use") {
        a.use_by_use = true;
      } else if (word == "place") {
        in_.expect("=", "after 'place'");
        a.placement.push_back(placement());
      } else if (word == "rate") {
        in_.expect("=", "after 'rate'");
        a.training.rate = in_.take_number("a factor on the rate");
      } else if (word == "decay") {
        in_.expect("=", "after 'decay'");
        a.training.decay = in_.take_number("a weight decay");
      } else if (word == "optimizer") {
        in_.expect("=", "after 'optimizer'");
        a.training.optimizer = in_.take_name("an optimizer");
      } else if (word == "clipped") {
        in_.expect("=", "after 'clipped'");
        a.training.clipped_as = in_.take_name("the name of a group");
      } else {
        in_.fail_at(at, "wanted a role or an attribute, found '" + word + "'");
      }
    }
  }

  Init init() {
    in_.skip_blank();
    const Position at = in_.position();
    const std::string word = in_.take_name("an initialization");
    if (word == "zeros") return {.kind = Init::Kind::kZeros};
    if (word == "ones") return {.kind = Init::Kind::kOnes};
    const std::map<std::string, Init::Kind> scaled = {{"normal", Init::Kind::kNormal},
                                                      {"uniform", Init::Kind::kUniform},
                                                      {"constant", Init::Kind::kConstant}};
    const auto kind = scaled.find(word);
    if (kind == scaled.end()) {
      in_.fail_at(at, "wanted zeros, ones, normal(...), uniform(...) or constant(...), found '" +
                          word + "'");
    }
    in_.expect("(", "after the kind of initialization");
    const double scale = in_.take_number("a number");
    in_.expect(")", "after the scale");
    return {.kind = kind->second, .scale = scale};
  }

  Placement placement() {
    Placement p;
    p.mesh_axis = in_.take_name("a mesh axis");
    in_.expect("/", "after the mesh axis");
    const Position at = in_.position();
    const std::string word = in_.take_name("replicated, sharded or partial");
    if (word == "sharded") {
      p.spread = Spread::kSharded;
      in_.expect("/", "after 'sharded'");
      p.axis = small_integer("an axis");
      bool slash = in_.accept("/");
      if (slash && std::isdigit(static_cast<unsigned char>(in_.peek()))) {
        p.whole = small_integer("the size of the whole axis");
        slash = false;
      }
      if (!slash && in_.accept("[")) {
        do {
          p.segments.push_back(small_integer("the size of a segment"));
        } while (in_.accept("|"));
        in_.expect("]", "after the segments of an axis");
      }
      p.home = slash || in_.accept("/");
      if (p.home && !in_.accept_word("home")) {
        in_.fail_wanted("the size of the whole axis or 'home'");
      }
    } else if (word == "partial") {
      p.spread = Spread::kPartial;
    } else if (word != "replicated") {
      in_.fail_at(at, "wanted replicated, sharded or partial, found '" + word + "'");
    }
    return p;
  }

  void attrs(Attrs& into) {
    do {
      const std::string key = in_.take_name("the name of an attribute");
      in_.expect("=", "after the name of an attribute");
      into[key] = attr();
    } while (in_.accept(","));
    in_.expect("}", "after the attributes");
  }

  Attr attr() {
    if (in_.looking_at("\"")) return in_.take_text();
    if (in_.accept("[")) {
      std::vector<int64_t> list;
      if (in_.accept("]")) return list;
      do {
        list.push_back(in_.take_integer("an integer"));
      } while (in_.accept(","));
      in_.expect("]", "after a list");
      return list;
    }
    const Position at = in_.position();
    const std::string text = in_.take_run("+-.", "a number, a text or a list");
    const char *begin = text.data(), *end = begin + text.size();
    const auto read = [&](auto& number) {
      const auto [stop, error] = std::from_chars(begin, end, number);
      return stop == end && error == std::errc();
    };
    // A point, an exponent or a name (inf, nan) tells a real number from an integer.
    const bool is_real = text.find_first_of(".en") != std::string::npos;
    int64_t whole = 0;
    double real = 0;
    if (!is_real && read(whole)) return whole;
    if (is_real && read(real)) return real;
    in_.fail_at(at, "wanted a number, a text or a list, found '" + text + "'");
  }

  int small_integer(std::string_view wanted) {
    in_.skip_blank();
    const Position at = in_.position();
    const int64_t number = in_.take_integer(wanted);
    if (number < 0 || number > std::numeric_limits<int>::max()) {
      in_.fail_at(at, "wanted " + std::string(wanted) + ", found " + std::to_string(number));
    }
    return static_cast<int>(number);
  }

  Cursor in_;
  int64_t most_objects_;
  Scheme scheme_;
  std::vector<bool> written_;
};

}  // namespace

std::string print(const Scheme& scheme) {
  std::string out = "scheme";
  if (!scheme.name.empty()) out += " " + scheme.name;
  if (scheme.parts > 1) out += " parts=" + std::to_string(scheme.parts);
  if (!scheme.mesh.empty()) out += " mesh";
  for (const MeshAxis& axis : scheme.mesh) {
    out += " " + axis.name + "=" + std::to_string(axis.size);
  }
  if (!scheme.schedule.empty()) {
    // A user's own is a text of several lines.
    out += " schedule \"";
    for (const char c : scheme.schedule) out += c == '\n' ? std::string("\\n") : std::string(1, c);
    out += "\"";
    if (scheme.chunks > 1) out += " chunks=" + std::to_string(scheme.chunks);
  }
  out += ":\n";
  for (const Value in : scheme.inputs) {
    out += "  " + std::string(name(scheme[in].role)) + " " + print_object(scheme, in, true) + "\n";
  }
  for (const Morphism& m : scheme.morphisms) {
    std::vector<std::string> made;
    for (const Value v : m.outputs) made.push_back(print_object(scheme, v, false));
    out += "  " + join(made, ", ") + " = " + m.op + "(" + refs(m.inputs) + ")";
    std::vector<std::string> attrs;
    for (const auto& [key, attr] : m.attrs) attrs.push_back(key + "=" + to_string(attr));
    if (!attrs.empty()) out += " {" + join(attrs, ", ") + "}";
    out += " @" + to_string(m.source);
    if (m.phase != Phase::kForward) out += " " + std::string(name(m.phase));
    if (m.epoch) out += " epoch=" + std::to_string(m.epoch);
    if (m.section != Section::kBody) out += " " + std::string(name(m.section));
    if (m.slot) out += " slot=" + std::to_string(m.slot);
    if (!m.after.empty()) out += " after " + refs(m.after);
    out += "\n";
  }
  for (const Carry& c : scheme.carries) out += "  carry " + ref(c.in) + " -> " + ref(c.out) + "\n";
  for (const Carry& c : scheme.loop) out += "  loop " + ref(c.in) + " -> " + ref(c.out) + "\n";
  return out + "  return " + refs(scheme.outputs) + "\n";
}

Scheme parse_scheme(std::string_view text, std::string_view file) {
  return FlatParser(text, file).parse();
}

}  // namespace adjoint
