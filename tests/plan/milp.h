// Integer linear programs, solved by CBC to the proven optimum, independently of our own solvers.
// Only tests use it; without CBC they are skipped.
#pragma once
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <vector>

#ifdef ADJOINT_HAVE_CBC
#include <coin/Cbc_C_Interface.h>
#define SKIP_WITHOUT_MILP() static_cast<void>(0)
#else
#define SKIP_WITHOUT_MILP() GTEST_SKIP() << "no CBC here (Debian: coinor-libcbc-dev)"
#endif

namespace adjoint {

class Milp {
 public:
  struct Term {
    double factor;
    int variable;
  };
  using Sum = std::vector<Term>;
  struct Answer {
    double cost;
    std::vector<double> values;
    bool is(int binary) const { return values[binary] > 0.5; }
  };

  int add_binary(double cost = 0) { return add({.cost = cost, .high = 1, .whole = true}); }
  int add_integer(double high, double cost = 0) {
    return add({.cost = cost, .high = high, .whole = true});
  }
  int add_number(double high, double cost = 0) { return add({.cost = cost, .high = high}); }
  void at_most(Sum sum, double bound) { rows_.push_back({std::move(sum), 'L', bound}); }
  void at_least(Sum sum, double bound) { rows_.push_back({std::move(sum), 'G', bound}); }
  void equal(Sum sum, double bound) { rows_.push_back({std::move(sum), 'E', bound}); }

  // Nothing where no values satisfy all rows.
  std::optional<Answer> minimize() const;

 private:
  struct Variable {
    double cost = 0, high = 0;
    bool whole = false;
  };
  struct Row {
    Sum sum;
    char sense;
    double bound;
  };

  int add(Variable variable) {
    variables_.push_back(variable);
    return static_cast<int>(variables_.size()) - 1;
  }

  std::vector<Variable> variables_;
  std::vector<Row> rows_;
};

#ifdef ADJOINT_HAVE_CBC
inline std::optional<Milp::Answer> Milp::minimize() const {
  Cbc_Model* model = Cbc_newModel();
  Cbc_setLogLevel(model, 0);
  Cbc_setParameter(model, "log", "0");
  Cbc_setParameter(model, "slog", "0");
  for (const Variable& v : variables_) {
    Cbc_addCol(model, "", 0, v.high, v.cost, static_cast<char>(v.whole), 0, nullptr, nullptr);
  }
  for (const Row& row : rows_) {
    std::vector<int> columns;
    std::vector<double> factors;
    for (const Term& t : row.sum) columns.push_back(t.variable), factors.push_back(t.factor);
    Cbc_addRow(model, "", static_cast<int>(columns.size()), columns.data(), factors.data(),
               row.sense, row.bound);
  }
  Cbc_setObjSense(model, 1);
  // Solve to the optimum, not to within a gap.
  Cbc_setAllowableGap(model, 0);
  Cbc_setAllowableFractionGap(model, 0);
  Cbc_solve(model);
  std::optional<Answer> answer;
  if (Cbc_isProvenOptimal(model)) {
    const double* values = Cbc_getColSolution(model);
    answer = Answer{.cost = Cbc_getObjValue(model), .values = {values, values + variables_.size()}};
  } else {
    EXPECT_TRUE(Cbc_isProvenInfeasible(model)) << "CBC gave up";
  }
  Cbc_deleteModel(model);
  return answer;
}
#else
inline std::optional<Milp::Answer> Milp::minimize() const {
  ADD_FAILURE() << "a test that needs CBC begins with SKIP_WITHOUT_MILP";
  return std::nullopt;
}
#endif

}  // namespace adjoint
