// What the names in a functor's text mean at one scheme: parameters, lets, the length L of the
// chain and the index of a state; and so which of the text's conditions hold.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/stages.h"
#include "functors/functor_text.h"
#include "schedules/schedule.h"

namespace adjoint {

// The word for a size of the mesh: as many ranks as its other axes leave.
inline constexpr std::string_view kRanksLeft = "left";

class Names {
 public:
  Names(const FunctorText& text, const Arguments& args, int chain_length,
        std::span<const MeshAxis> mesh = {});

  const std::vector<std::string>& chosen() const { return chosen_; }  // what each let became
  void set(const std::string& name, double value) { numbers_[name] = value; }
  // What each block of the chain costs, and what lies before and behind them, for `cut`.
  void set_costs(ChainCosts costs) {
    costs_ = std::move(costs);
    cuts_.clear();
  }
  const std::map<std::string, double>& numbers() const { return numbers_; }

  bool is_param(std::string_view name) const;
  double number(const Term& term) const;
  bool holds(const Condition& condition) const { return !condition || holds(*condition); }
  bool holds(const Term& condition) const;
  // The ways in which a condition holds, as text: of `l < 2 or l in keep` each alternative that is
  // true here, and of a list the element. One way that says nothing where there is no condition.
  std::vector<std::string> ways(const Condition& condition) const {
    return condition ? ways(*condition) : std::vector<std::string>{""};
  }
  std::string filled(std::string text) const;  // "{every}" becomes its value

 private:
  // A parameter's name stands for what was given; `largest` of a list is a number, and so is the
  // `mesh` of an axis: how many ranks it has so far. cut(l, n) is the piece of n, from 1, in which
  // block l of the chain is; cut(l, n, [2, 5]) where new pieces begin at blocks 2 and 5.
  Term meant(const Term& term) const;
  std::vector<Term> elements(const Term& term) const;  // a single value is a list of one
  const std::vector<int>& cuts(int pieces) const;
  bool is_number(const Term& term) const;
  bool compare(const Term& comparison) const;
  std::vector<std::string> ways(const Term& condition) const;

  const FunctorText& text_;
  const Arguments& args_;
  std::vector<MeshAxis> mesh_;
  ChainCosts costs_;
  mutable std::map<int, std::vector<int>> cuts_;  // by pieces; every object of the chain asks
  std::map<std::string, double> numbers_;
  std::vector<std::string> chosen_;
};

// The schedule in a file that the text's `order` was told; nothing where it is a word.
std::optional<Schedule> own_schedule(const FunctorText& text, const Arguments& args);

}  // namespace adjoint
