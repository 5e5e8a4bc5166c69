#include "body/algebra.h"

#include <optional>

#include "base/text.h"

namespace adjoint {

namespace {

// How strongly a text holds together, weakest first: a sum, a product, a factor.
enum class Holds : uint8_t { kComparison, kSum, kProduct, kFactor };

struct Piece {
  std::string text;
  Holds holds = Holds::kFactor;
};

std::string inside(const Piece& piece, Holds at_least) {
  return piece.holds >= at_least ? piece.text : "(" + piece.text + ")";
}

struct Infix {
  ExprKind kind;
  std::string_view between;
  Holds holds;
};
constexpr Infix kInfix[] = {
    {ExprKind::kAdd, " + ", Holds::kSum},         {ExprKind::kSub, " - ", Holds::kSum},
    {ExprKind::kMul, "*", Holds::kProduct},       {ExprKind::kDiv, "/", Holds::kProduct},
    {ExprKind::kLess, " < ", Holds::kComparison}, {ExprKind::kEqual, " == ", Holds::kComparison},
};

// What is said differently to people than in a morphism's attribute.
std::string function_name(const ExprNode& n) {
  switch (n.kind) {
    case ExprKind::kRowSum:
      return "sum";
    case ExprKind::kRowMax:
      return "max_of_row";
    case ExprKind::kSelect:
      return "where";
    case ExprKind::kWhole:
      return "nearest_whole";
    case ExprKind::kFinite:
      return "is_finite";
    case ExprKind::kRound:
      return "round_to_" + std::string(name(static_cast<Dtype>(n.index)));
    default:
      return std::string(facts(n.kind).name);
  }
}

class Writer {
 public:
  Writer(const Body& body, const std::vector<std::string>& names)
      : body_(body), names_(names), uses_(body.nodes.size(), 0) {
    for (const ExprNode& n : body.nodes) {
      for (int i = 0; i < facts(n.kind).arity; ++i) ++uses_[n.args[i]];
    }
    for (const BodyOutput& out : body.outputs) ++uses_[out.node];
  }

  std::string write() {
    std::vector<std::string> results, shared;
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      Piece piece = piece_of(body_.nodes[i]);
      // What is read twice and is more than a name gets a name of its own.
      if (uses_[i] > 1 && facts(body_.nodes[i].kind).arity > 0) {
        const std::string name = "t" + std::to_string(shared.size() + 1);
        shared.push_back(name + " = " + piece.text);
        piece = {name};
      }
      pieces_.push_back(std::move(piece));
    }
    for (const BodyOutput& out : body_.outputs) {
      std::string text = pieces_[out.node].text;
      if (out.summed_axes > 0) text = "sum_over_rows(" + text + ")";
      results.push_back(std::move(text));
    }
    return join(results, ", ") + (shared.empty() ? "" : " where " + join(shared, ", "));
  }

 private:
  std::string operand(int index) const {
    if (index < static_cast<int>(names_.size()) && !names_[index].empty()) return names_[index];
    return index < 26 ? std::string(1, static_cast<char>('a' + index))
                      : "operand_" + std::to_string(index);
  }

  // Of 1/sqrt(z): z, where nobody else reads the root.
  std::optional<int> one_over_root(const ExprNode& n) const {
    if (n.kind != ExprKind::kDiv) return std::nullopt;
    const ExprNode &one = body_.nodes[n.args[0]], &root = body_.nodes[n.args[1]];
    const bool is_one = one.kind == ExprKind::kConst && one.value == 1;
    if (!is_one || root.kind != ExprKind::kSqrt || uses_[n.args[1]] > 1) return std::nullopt;
    return root.args[0];
  }

  Piece piece_of(const ExprNode& n) const {
    switch (n.kind) {
      case ExprKind::kInput:
        return {operand(n.index)};
      case ExprKind::kConst:
        return {shortest(n.value), n.value < 0 ? Holds::kSum : Holds::kFactor};
      case ExprKind::kIndex:
        return {"index(-" + std::to_string(n.index + 1) + ")"};
      case ExprKind::kRandom:
        return {"random()"};
      case ExprKind::kNeg:
        return {"-" + inside(pieces_[n.args[0]], Holds::kProduct), Holds::kSum};
      default:
        break;
    }
    if (const auto root = one_over_root(n)) return {"rsqrt(" + pieces_[*root].text + ")"};
    for (const Infix& infix : kInfix) {
      if (infix.kind != n.kind) continue;
      // a - (b - c) and a/(b/c): the right side holds more strongly.
      const bool takes_away = n.kind == ExprKind::kSub || n.kind == ExprKind::kDiv;
      const Holds right = takes_away || infix.holds == Holds::kComparison
                              ? static_cast<Holds>(static_cast<int>(infix.holds) + 1)
                              : infix.holds;
      return {inside(pieces_[n.args[0]], infix.holds) + std::string(infix.between) +
                  inside(pieces_[n.args[1]], right),
              infix.holds};
    }
    std::vector<std::string> args;
    for (int i = 0; i < facts(n.kind).arity; ++i) args.push_back(pieces_[n.args[i]].text);
    return {function_name(n) + "(" + join(args, ", ") + ")"};
  }

  const Body& body_;
  const std::vector<std::string>& names_;
  std::vector<int> uses_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::string algebra(const Body& body, const std::vector<std::string>& names) {
  return Writer(body, names).write();
}

}  // namespace adjoint
