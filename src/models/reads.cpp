#include "models/reads.h"

#include <algorithm>

#include "base/error.h"
#include "ops/words.h"

namespace adjoint {

namespace {

using Values = std::map<std::string, ValueId, std::less<>>;

const OpDef* called_op(const Document& document, const Term& call) {
  if (document.box(call.word)) return nullptr;
  const OpDef* op = find_op(call.word);
  return op && !op->params.empty() ? op : find_word(call.word);
}

// The param that each argument by position has, as the elaborator binds them; null past the last.
std::vector<const Param*> bound_params(const Document& document, const OpDef& op, const Term& call,
                                       const Values& values) {
  std::vector<const Param*> bound;
  const auto is_bound = [&](const Param& p) {
    return std::find(bound.begin(), bound.end(), &p) != bound.end();
  };
  for (const Term& arg : call.args) {
    const bool is_word = arg.kind == Term::Kind::kName && !values.count(arg.word) &&
                         !is_known_number(document, arg.word);
    const Param* param = nullptr;
    for (const Param& p : op.params) {
      if (is_word && p.name == arg.word && p.kind == Param::Kind::kFlag) param = &p;
    }
    for (const Param& p : op.params) {
      if (!param && (!is_bound(p) || p.kind == Param::Kind::kTensors)) param = &p;
    }
    bound.push_back(param);
  }
  return bound;
}

class Reader {
 public:
  explicit Reader(const Document& document) : document_(document) {}

  std::vector<NameUse> read(const Box& box) {
    for (size_t i = 0; i < box.formals.size(); ++i) values_[box.formals[i].name] = {-1, i};
    for (statement_ = 0; statement_ < box.body.size(); ++statement_) {
      const Statement& s = box.body[statement_];
      for (const Term& value : s.values) visit(value, Mode::kPlain);
      for (size_t i = 0; i < s.names.size(); ++i) {
        values_[s.names[i]] = {static_cast<int>(statement_), i};
      }
    }
    return std::move(uses_);
  }

 private:
  enum class Mode : uint8_t { kPlain, kLabel, kCallName, kWord, kMaybeCall, kInit };

  void visit(const Term& term, Mode mode) {
    switch (term.kind) {
      case Term::Kind::kNumber:
      case Term::Kind::kText:
        return;
      case Term::Kind::kName:
        return name(term, mode);
      case Term::Kind::kCall:
        return call(term);
      case Term::Kind::kWhen:
        for (size_t i = 0; i < term.args.size(); ++i) {
          visit(term.args[i], i == 1 ? Mode::kPlain : mode);
        }
        return;
      default:
        for (const Term& arg : term.args) visit(arg, mode == Mode::kLabel ? mode : Mode::kPlain);
    }
  }

  void name(const Term& term, Mode mode) {
    using Kind = NameUse::Kind;
    NameUse use{.term = &term, .kind = Kind::kWord, .statement = statement_};
    const auto value = values_.find(term.word);
    if (mode == Mode::kLabel) {
      use.kind = Kind::kLabel;
    } else if (mode == Mode::kCallName) {
      use.kind = Kind::kCallName;
    } else if (mode == Mode::kPlain || mode == Mode::kMaybeCall) {
      if (value != values_.end()) {
        use.kind = Kind::kValue;
        use.value = value->second;
      } else if (is_known_number(document_, term.word)) {
        use.kind = Kind::kNumber;
      } else if (mode == Mode::kMaybeCall) {
        use.kind = Kind::kCallName;
      }
    }
    uses_.push_back(use);
  }

  void call(const Term& call) {
    for (const Term& times : call.repeat) visit(times, Mode::kPlain);
    const OpDef* op = called_op(document_, call);
    std::vector<const Param*> bound(call.args.size(), nullptr);
    if (op) bound = bound_params(document_, *op, call, values_);
    for (size_t i = 0; i < call.args.size(); ++i) visit(call.args[i], mode_of(bound[i]));
    for (const auto& [word, value] : call.keywords) {
      if (word == "name" || word == "weights") {
        visit(value, Mode::kCallName);
        continue;
      }
      const Param* param = nullptr;
      for (size_t i = 0; op && i < op->params.size(); ++i) {
        if (op->params[i].name == word) param = &op->params[i];
      }
      visit(value, !param && word == "init" ? Mode::kInit : mode_of(param));
    }
  }

  static Mode mode_of(const Param* param) {
    if (!param) return Mode::kPlain;
    switch (param->kind) {
      case Param::Kind::kAxis:
        return Mode::kLabel;
      case Param::Kind::kWord:
        return Mode::kWord;
      case Param::Kind::kInit:
        return Mode::kInit;
      case Param::Kind::kMaybeTensor:
        return Mode::kMaybeCall;
      default:
        return Mode::kPlain;
    }
  }

  const Document& document_;
  Values values_;
  size_t statement_ = 0;
  std::vector<NameUse> uses_;
};

}  // namespace

std::vector<NameUse> names_of(const Document& document, const Box& box) {
  return Reader(document).read(box);
}

Values values_before(const Box& box, size_t statement) {
  Values values;
  for (size_t i = 0; i < box.formals.size(); ++i) values[box.formals[i].name] = {-1, i};
  for (size_t s = 0; s < std::min(statement, box.body.size()); ++s) {
    for (size_t i = 0; i < box.body[s].names.size(); ++i) {
      values[box.body[s].names[i]] = {static_cast<int>(s), i};
    }
  }
  return values;
}

const std::string& name_of(const Box& box, ValueId value) {
  return value.statement < 0 ? box.formals[value.index].name
                             : box.body[static_cast<size_t>(value.statement)].names[value.index];
}

bool is_name(std::string_view word) {
  Cursor in(word, "");
  return !word.empty() && in.at_name() && in.take_name("a name") == word;
}

bool is_preset_name(std::string_view word) {
  Cursor in(word, "");
  try {
    return in.take_run("-.", "a name") == word;
  } catch (const Error&) {
    return false;
  }
}

bool is_known_number(const Document& document, std::string_view name) {
  for (const std::string_view known : {"batch", "seq", "l", "position"}) {
    if (name == known) return true;
  }
  const auto has = [&](const std::vector<Setting>& all) {
    return std::any_of(all.begin(), all.end(), [&](const Setting& s) { return s.name == name; });
  };
  return has(document.axes) || has(document.numbers);
}

std::vector<DefaultParam> defaults_of(const Document& document, const Term& call,
                                      const Values& values) {
  const OpDef* op = called_op(document, call);
  if (!op) return {};
  const std::vector<const Param*> bound = bound_params(document, *op, call, values);
  std::vector<DefaultParam> left;
  for (const Param& p : op->params) {
    const bool by_name = std::any_of(call.keywords.begin(), call.keywords.end(),
                                     [&](const auto& keyword) { return keyword.first == p.name; });
    if (by_name || std::find(bound.begin(), bound.end(), &p) != bound.end()) continue;
    left.push_back({std::string(p.name), std::string(p.otherwise)});
  }
  return left;
}

}  // namespace adjoint
