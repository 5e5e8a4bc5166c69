#include "models/call_names.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "ops/words.h"

namespace adjoint {

namespace {

const Term* said_name(const Term& call) {
  for (const auto& [word, value] : call.keywords) {
    if (word == "name") return &value;
  }
  return nullptr;
}

void collect_numbered(const Term& term, std::set<std::string>& names) {
  for (const Term& arg : term.args) collect_numbered(arg, names);
  for (const auto& [word, value] : term.keywords) {
    if (word == "name" && value.kind == Term::Kind::kText) names.insert(value.word);
    collect_numbered(value, names);
  }
}

// Follows the order of the elaborator: operands before the call that reads them.
class Numbering {
 public:
  Numbering(const Document& document, const Box& box)
      : document_(document), said_numbers_(numbered_names(box)) {
    for (const Statement& s : box.body) {
      for (const Term& value : s.values) {
        if (value.kind == Term::Kind::kCall && value.word == "param" && s.names.size() == 1) {
          statement_ = &value;
          statement_name_ = s.names[0];
        }
        visit(value, false);
      }
    }
  }
  std::vector<CallName> take() { return std::move(all_); }

 private:
  // Calls so far that there are in any settings, and those that there may be.
  struct Count {
    int least = 0, most = 0;
  };

  void visit(const Term& term, bool chosen) {
    const bool inside = chosen || term.kind == Term::Kind::kWhen;
    for (const Term& arg : term.args) visit(arg, inside);
    for (const auto& [word, value] : term.keywords) {
      if (word != "name" && word != "weights") visit(value, inside);
    }
    if (term.kind != Term::Kind::kCall) return;
    const bool is_box = document_.box(term.word) != nullptr;
    if (!is_box && !find_op(term.word) && !find_word(term.word)) return;
    CallName call{.call = &term, .kind = term.word, .is_box = is_box};
    const Term* name = said_name(term);
    const bool by_statement =
        &term == statement_ && !name && !is_box && !taken_.count(statement_name_);
    const bool numbered = name && name->kind == Term::Kind::kText;
    if (name) call.said = name->word;
    if (by_statement) call.said = statement_name_;
    if (!numbered) count(call, chosen);
    if (call.said) taken_.insert(*call.said);
    all_.push_back(std::move(call));
  }

  void count(CallName& call, bool chosen) {
    Count& count = counts_[call.kind];
    call.first = count.least + 1;
    call.last = count.most + 1;
    if (!chosen) ++count.least;
    ++count.most;
    if (call.said) return;
    const auto is_taken = [&](int number) {
      const std::string name = call.numbered(number);
      return taken_.count(name) > 0 || said_numbers_.count(name) > 0;
    };
    // A name that is taken is passed over; where the number is not known, any of them may be.
    const bool known = call.first == call.last;
    while (known && is_taken(call.first)) ++call.first;
    call.last = known ? call.first : call.last + static_cast<int>(said_numbers_.size());
    if (known) taken_.insert(call.numbered(call.first));
  }

  const Document& document_;
  std::set<std::string> said_numbers_, taken_;
  std::map<std::string, Count> counts_;
  const Term* statement_ = nullptr;
  std::string statement_name_;
  std::vector<CallName> all_;
};

bool same_pattern(std::string_view pattern, const CallName& call) {
  const size_t index = pattern.find('[');
  return call.may_be(pattern.substr(0, index));
}

// Tells if calls that are reached from a box may have this path. Below the call of an op stand
// things that the op itself made.
bool may_be_path(const Document& document, const Box& box, std::string_view path, int depth) {
  constexpr int kDeepest = 64;  // boxes do not call themselves; a path is shorter
  const size_t dot = path.find('.');
  const std::string_view rest = dot == path.npos ? "" : path.substr(dot + 1);
  for (const CallName& call : call_names(document, box)) {
    if (!same_pattern(path.substr(0, dot), call)) continue;
    const Box* inner = document.box(call.kind);
    if (!inner || rest.empty() || depth > kDeepest) return true;
    if (may_be_path(document, *inner, rest, depth + 1)) return true;
  }
  return false;
}

}  // namespace

bool is_numbered_name(std::string_view word, std::string_view kind, bool is_box) {
  if (!word.starts_with(kind) || word.size() <= kind.size() + 1 || word[kind.size()] != '#') {
    return false;
  }
  const std::string_view digits = word.substr(kind.size() + 1);
  return digits.size() < 10 && digits[0] != '0' && (!is_box || digits != "1") &&
         std::all_of(digits.begin(), digits.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::set<std::string> numbered_names(const Box& box) {
  std::set<std::string> names;
  for (const Statement& s : box.body) {
    for (const Term& value : s.values) collect_numbered(value, names);
  }
  return names;
}

std::string CallName::numbered(int number) const {
  return is_box && number == 1 ? kind : kind + "#" + std::to_string(number);
}

std::optional<std::string> CallName::name() const {
  if (said) return said;
  return first == last ? std::optional(numbered(first)) : std::nullopt;
}

bool CallName::may_be(std::string_view component) const {
  // A letter that counts stands for some number.
  if (component.find('{') != component.npos) return true;
  if (said) return *said == component;
  if (is_box && component == kind) return first == 1;
  if (!is_numbered_name(component, kind, is_box)) return false;
  const int number = std::stoi(std::string(component.substr(kind.size() + 1)));
  return first <= number && number <= last;
}

std::vector<CallName> call_names(const Document& document, const Box& box) {
  return Numbering(document, box).take();
}

std::vector<const FormatModule*> impossible_modules(const Document& document,
                                                    const Format& format) {
  std::vector<const FormatModule*> all;
  const Box* model = document.box("model");
  for (const FormatModule& module : format.modules) {
    if (model && !may_be_path(document, *model, module.ours, 0)) all.push_back(&module);
  }
  return all;
}

}  // namespace adjoint
