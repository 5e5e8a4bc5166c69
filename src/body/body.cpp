#include "body/body.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "scheme/cursor.h"

namespace adjoint {

namespace {

constexpr ExprFacts kFacts[] = {
    {"x", 0},     {"const", 0},  {"index", 0},  {"random", 0}, {"add", 2},   {"sub", 2},
    {"mul", 2},   {"div", 2},    {"min", 2},    {"max", 2},    {"less", 2},  {"equal", 2},
    {"neg", 1},   {"exp", 1},    {"log", 1},    {"sqrt", 1},   {"tanh", 1},  {"sigmoid", 1},
    {"erf", 1},   {"sin", 1},    {"cos", 1},    {"finite", 1}, {"whole", 1}, {"select", 3},
    {"round", 1}, {"rowsum", 1}, {"rowmax", 1}, {"rotate", 1},
};

// Folds only what is exact for every value of the other operand; a fold must not change the order
// of a sum.
std::optional<int> fold(const Body& body, const ExprNode& node) {
  const auto value = [&](int i) -> std::optional<double> {
    const int arg = node.args[i];
    if (arg < 0 || body.nodes[arg].kind != ExprKind::kConst) return std::nullopt;
    return body.nodes[arg].value;
  };
  const auto a = value(0), b = value(1);
  switch (node.kind) {
    case ExprKind::kAdd:
      if (a == 0.0) return node.args[1];
      if (b == 0.0) return node.args[0];
      break;
    case ExprKind::kSub:
      if (b == 0.0) return node.args[0];
      break;
    case ExprKind::kMul:
      if (a == 1.0 || b == 0.0) return node.args[1];
      if (b == 1.0 || a == 0.0) return node.args[0];
      break;
    case ExprKind::kDiv:
      if (b == 1.0 || a == 0.0) return node.args[0];
      break;
    case ExprKind::kSelect:
      if (a) return node.args[*a != 0 ? 1 : 2];
      break;
    default:
      break;
  }
  return std::nullopt;
}

std::optional<double> constant_value(const Body& body, const ExprNode& node) {
  double v[2] = {0, 0};
  const int arity = facts(node.kind).arity;
  if (arity < 1 || arity > 2) return std::nullopt;
  for (int i = 0; i < arity; ++i) {
    if (body.nodes[node.args[i]].kind != ExprKind::kConst) return std::nullopt;
    v[i] = body.nodes[node.args[i]].value;
  }
  switch (node.kind) {
    case ExprKind::kAdd:
      return v[0] + v[1];
    case ExprKind::kSub:
      return v[0] - v[1];
    case ExprKind::kMul:
      return v[0] * v[1];
    case ExprKind::kDiv:
      return v[0] / v[1];
    case ExprKind::kNeg:
      return -v[0];
    case ExprKind::kLog:
      return std::log(v[0]);
    default:
      return std::nullopt;
  }
}

// The node that equals this one bit for bit; 0 and -0 are different constants.
std::optional<int> find_node(const std::vector<ExprNode>& nodes, const ExprNode& node) {
  // Most nodes differ in their index or first operand; a sum of a thousand operands looks at each.
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const ExprNode& other) {
    return other.index == node.index && other.args[0] == node.args[0] && other == node &&
           std::signbit(other.value) == std::signbit(node.value);
  });
  if (found == nodes.end()) return std::nullopt;
  return static_cast<int>(found - nodes.begin());
}

}  // namespace

const ExprFacts& facts(ExprKind kind) { return kFacts[static_cast<size_t>(kind)]; }

int Body::add(ExprNode node) {
  if (const auto folded = fold(*this, node)) return *folded;
  if (const auto value = constant_value(*this, node)) node = {.value = *value};
  if (const auto found = find_node(nodes, node)) return *found;
  nodes.push_back(std::move(node));
  return static_cast<int>(nodes.size() - 1);
}

int Body::num_inputs() const {
  int count = 0;
  for (const ExprNode& n : nodes) {
    const bool reads = n.kind == ExprKind::kInput || n.kind == ExprKind::kRandom;
    if (reads) count = std::max(count, n.index + 1);
  }
  return count;
}

bool Body::needs_whole_rows() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const ExprNode& n) {
    return n.kind == ExprKind::kRowSum || n.kind == ExprKind::kRowMax ||
           n.kind == ExprKind::kRotate;
  });
}

bool Body::uses_index() const {
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const ExprNode& n) { return n.kind == ExprKind::kIndex; });
}

Expr input(Body& body, int index) {
  return {&body, body.add({.kind = ExprKind::kInput, .index = index})};
}
Expr constant(Body& body, double value) { return {&body, body.add({.value = value})}; }
Expr index_along(Body& body, int axis_from_end) {
  return {&body, body.add({.kind = ExprKind::kIndex, .index = axis_from_end})};
}
Expr random_uniform(Body& body, int counter_input, std::string path) {
  return {&body, body.add({.kind = ExprKind::kRandom, .index = counter_input, .text = path})};
}
Expr apply(ExprKind kind, Expr a) {
  return {a.body, a.body->add({.kind = kind, .args = {a.node, -1, -1}})};
}
Expr apply(ExprKind kind, Expr a, Expr b) {
  return {a.body, a.body->add({.kind = kind, .args = {a.node, b.node, -1}})};
}
Expr apply(ExprKind kind, Expr a, double b) { return apply(kind, a, constant(*a.body, b)); }
Expr select(Expr condition, Expr yes, Expr no) {
  return {yes.body,
          yes.body->add({.kind = ExprKind::kSelect, .args = {condition.node, yes.node, no.node}})};
}
Expr select(Expr condition, Expr yes, double no) {
  return select(condition, yes, constant(*yes.body, no));
}
Expr round_to(Expr a, Dtype dtype) {
  return {a.body, a.body->add({.kind = ExprKind::kRound,
                               .args = {a.node, -1, -1},
                               .index = static_cast<int>(dtype)})};
}

namespace {

std::string leaf_text(const ExprNode& n) {
  switch (n.kind) {
    case ExprKind::kInput:
      return "x" + std::to_string(n.index);
    case ExprKind::kConst:
      return shortest(n.value);
    case ExprKind::kIndex:
      return "index" + std::to_string(n.index);
    default:
      return "random" + std::to_string(n.index) + "'" + n.text + "'";
  }
}

class BodyParser {
 public:
  explicit BodyParser(std::string_view text) : in_(text, "body") {}

  // t0 = mul(x0, x0); add(t0, 1), rowsum(t0)/2/1
  Body parse() {
    while (in_.looking_at("t") && std::isdigit(in_.peek(1))) {
      in_.accept("t");
      const int64_t number = in_.take_integer("the number of a shared value");
      if (!in_.accept("=")) {
        outputs_from(shared(number));
        return finished();
      }
      shared_[number] = expr();
      in_.expect(";", "after a shared value");
    }
    outputs_from(expr());
    return finished();
  }

 private:
  Body finished() {
    in_.expect_line_end();
    return std::move(body_);
  }

  int shared(int64_t number) {
    const auto found = shared_.find(number);
    if (found == shared_.end()) in_.fail_wanted("a shared value that was defined");
    return found->second;
  }

  void outputs_from(int first) {
    output(first);
    while (in_.accept(",")) output(expr());
  }

  void output(int node) {
    BodyOutput out{.node = node};
    while (in_.accept("/")) {
      if (in_.accept("one")) {
        out.row = BodyOutput::Row::kOne;
      } else if (in_.accept("dropped")) {
        out.row = BodyOutput::Row::kDropped;
      } else if (in_.at_number()) {
        out.summed_axes = static_cast<int>(in_.take_integer("how many axes are summed"));
      } else {
        out.dtype = dtype_named(in_.take_name("a dtype"));
        if (!out.dtype) in_.fail_wanted("a dtype");
      }
    }
    body_.outputs.push_back(out);
  }

  int expr() {
    if (in_.at_number() || in_.looking_at("-") || in_.looking_at("inf")) {
      if (in_.accept("-inf")) return body_.add({.value = -INFINITY});
      if (in_.accept("inf")) return body_.add({.value = INFINITY});
      return body_.add({.value = in_.take_number("a number")});
    }
    const Position at = in_.position();
    const std::string word = in_.take_name("an expression");
    const size_t digits = word.find_first_of("0123456789");
    if (digits != std::string::npos && !in_.looking_at("(")) return leaf(word, digits, at);
    for (size_t k = 0; k < std::size(kFacts); ++k) {
      const std::string_view name = kFacts[k].name;
      if (kFacts[k].arity == 0 || !word.starts_with(name)) continue;
      if (word.size() != name.size() && static_cast<ExprKind>(k) != ExprKind::kRound) continue;
      ExprNode node{.kind = static_cast<ExprKind>(k)};
      if (node.kind == ExprKind::kRound) {
        node.index = number_in(word, name.size(), at);
        if (node.index >= kNumDtypes) in_.fail_at(at, "wanted a dtype's number");
      }
      in_.expect("(", "after the name of a function");
      for (int i = 0; i < kFacts[k].arity; ++i) {
        if (i) in_.expect(",", "between operands");
        node.args[i] = expr();
      }
      in_.expect(")", "after the operands");
      return add_exactly(std::move(node));
    }
    in_.fail_at(at, "wanted an expression, found '" + word + "'");
  }

  // The number that a word ends in.
  int number_in(const std::string& word, size_t from, Position at) {
    int number = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data() + from, end, number);
    if (stop != end || error != std::errc()) {
      in_.fail_at(at, "wanted an expression, found '" + word + "'");
    }
    return number;
  }

  int leaf(const std::string& word, size_t digits, Position at) {
    const std::string kind = word.substr(0, digits);
    const int number = number_in(word, digits, at);
    if (kind == "t") return shared(number);
    if (kind == "x") return body_.add({.kind = ExprKind::kInput, .index = number});
    if (kind == "index") return body_.add({.kind = ExprKind::kIndex, .index = number});
    if (kind != "random") in_.fail_at(at, "wanted an expression, found '" + word + "'");
    in_.expect("'", "before the path of random numbers");
    const std::string path = in_.take_run(".[]#:+-*/^", "the path of random numbers");
    in_.expect("'", "after the path of random numbers");
    return body_.add({.kind = ExprKind::kRandom, .index = number, .text = path});
  }

  // Adds the node as it is, without folding, so that reading a printed body gives the same body.
  int add_exactly(ExprNode node) {
    if (const auto found = find_node(body_.nodes, node)) return *found;
    body_.nodes.push_back(std::move(node));
    return static_cast<int>(body_.nodes.size() - 1);
  }

  Cursor in_;
  Body body_;
  std::map<int64_t, int> shared_;
};

}  // namespace

std::string print(const Body& body) {
  std::vector<int> uses(body.nodes.size(), 0);
  for (const ExprNode& n : body.nodes) {
    for (int i = 0; i < facts(n.kind).arity; ++i) ++uses[n.args[i]];
  }
  for (const BodyOutput& out : body.outputs) ++uses[out.node];
  std::vector<std::string> text(body.nodes.size());
  std::string out;
  int shared = 0;
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const ExprNode& n = body.nodes[i];
    const int arity = facts(n.kind).arity;
    if (arity == 0) {
      text[i] = leaf_text(n);
      continue;
    }
    text[i] = std::string(facts(n.kind).name);
    if (n.kind == ExprKind::kRound) text[i] += std::to_string(n.index);
    text[i] += "(";
    for (int a = 0; a < arity; ++a) text[i] += (a ? ", " : "") + text[n.args[a]];
    text[i] += ")";
    if (uses[i] > 1) {
      out += "t" + std::to_string(shared) + " = " + text[i] + "; ";
      text[i] = "t" + std::to_string(shared++);
    }
  }
  for (size_t i = 0; i < body.outputs.size(); ++i) {
    const BodyOutput& o = body.outputs[i];
    out += (i ? ", " : "") + text[o.node];
    if (o.summed_axes) out += "/" + std::to_string(o.summed_axes);
    if (o.row == BodyOutput::Row::kOne) out += "/one";
    if (o.row == BodyOutput::Row::kDropped) out += "/dropped";
    if (o.dtype) out += "/" + std::string(name(*o.dtype));
  }
  return out;
}

Body parse_body(std::string_view text) { return BodyParser(text).parse(); }

std::vector<Axis> broadcast(std::string_view op, const std::vector<Type>& inputs) {
  std::vector<Axis> space;
  for (const Type& t : inputs) {
    if (t.dtype == Dtype::kI64) continue;
    if (t.axes.size() > space.size()) {
      space.insert(space.begin(), t.axes.size() - space.size(), Axis{"", 1});
    }
    for (int back = 1; back <= t.rank(); ++back) {
      Axis& mine = space[space.size() - back];
      const Axis& axis = t.axes[t.axes.size() - back];
      if (mine.size == 1 && (axis.size != 1 || mine.name.empty())) {
        mine = axis;
      } else if (axis.size != 1 && axis.size != mine.size) {
        std::vector<std::string> shapes;
        for (const Type& each : inputs) shapes.push_back(shape_string(each));
        fail(op, ": axes do not fit: ", mine.name, "=", mine.size, " against ", axis.name, "=",
             axis.size, ", in ", join(shapes, " and "));
      }
    }
  }
  return space;
}

std::vector<Type> output_types(const Body& body, const std::vector<Axis>& space,
                               const std::vector<Type>& inputs) {
  Dtype dtype = Dtype::kF32;
  for (const Type& t : inputs) {
    if (is_float(t.dtype)) {
      dtype = t.dtype;
      break;
    }
  }
  std::vector<Type> types;
  for (const BodyOutput& out : body.outputs) {
    Type t{.dtype = out.dtype.value_or(dtype)};
    t.axes.assign(space.begin() + std::min<size_t>(out.summed_axes, space.size()), space.end());
    if (out.row == BodyOutput::Row::kOne && t.rank() > 0) t.axes.back() = {"one", 1};
    if (out.row == BodyOutput::Row::kDropped) t.axes.clear();
    types.push_back(std::move(t));
  }
  return types;
}

Body without_dead_nodes(const Body& body) {
  std::vector<bool> live(body.nodes.size(), false);
  for (const BodyOutput& out : body.outputs) live[out.node] = true;
  for (size_t i = body.nodes.size(); i-- > 0;) {
    if (!live[i]) continue;
    for (int a = 0; a < facts(body.nodes[i].kind).arity; ++a) live[body.nodes[i].args[a]] = true;
  }
  Body result;
  std::vector<int> renamed(body.nodes.size(), -1);
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    if (!live[i]) continue;
    ExprNode node = body.nodes[i];
    for (int a = 0; a < facts(node.kind).arity; ++a) node.args[a] = renamed[node.args[a]];
    renamed[i] = static_cast<int>(result.nodes.size());
    result.nodes.push_back(std::move(node));
  }
  for (BodyOutput out : body.outputs) {
    out.node = renamed[out.node];
    result.outputs.push_back(out);
  }
  return result;
}

std::vector<int> drop_unused_inputs(Body& body) {
  std::map<int, int> renamed;
  for (const ExprNode& n : body.nodes) {
    if (n.kind == ExprKind::kInput || n.kind == ExprKind::kRandom) renamed[n.index] = 0;
  }
  std::vector<int> kept;
  for (auto& [old, now] : renamed) {
    now = static_cast<int>(kept.size());
    kept.push_back(old);
  }
  for (ExprNode& n : body.nodes) {
    if (n.kind == ExprKind::kInput || n.kind == ExprKind::kRandom) n.index = renamed[n.index];
  }
  return kept;
}

}  // namespace adjoint
