// The merged matrix is found by evaluating the rewritten piece f in float64: column j is f(W e_j,
// e_j) - f(0, 0), and f(b, 0) is the bias. No functor is known by name, so this works for every
// functor that adds something linear to a linear map. A few random rows then check that the merged
// map equals the piece. It costs one evaluation of the piece per batch of columns, and float64
// copies of one piece at a time.
#include "train/merge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "analysis/roles.h"
#include "base/error.h"
#include "base/file.h"
#include "data/tokenizer.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "functors/pipeline.h"
#include "functors/reference.h"
#include "ops/op_def.h"
#include "run/run.h"
#include "scheme/elements.h"
#include "train/bound_model.h"
#include "train/derived_run.h"
#include "train/resolve_config.h"
#include "train/saved_parameters.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

using Numbers = std::vector<double>;

constexpr int kProbes = 4;          // random rows for which both must agree
constexpr double kSameUpTo = 1e-5;  // relative to the largest result; scales are float32
constexpr double kLinearUpTo =
    1e-9;  // relative to the largest result; far above float64's rounding

// The functors of a stack that rewrite the model. Those that only set attributes change no weight.
Stack rewriting_part(const Stack& stack) {
  Stack part;
  for (StackedFunctor f : stack.functors) {
    if (f.functor.text.empty()) continue;
    std::erase_if(f.functor.rules,
                  [](const FunctorRule& rule) { return rule.phase != FunctorPhase::kMorphisms; });
    if (!f.functor.rules.empty()) part.functors.push_back(std::move(f));
  }
  return part;
}

// A linear map of the plain model, and what the stack made of it.
struct Rewritten {
  int plain = 0;                   // its morphism in the plain scheme
  Value x = -1, y = -1, out = -1;  // in the rewritten scheme; y is -1 if the piece does not read it
};

// A rewrite keeps the model's own morphisms, in order and with their sources, and redirects their
// readers to another value.
std::vector<Rewritten> find_rewritten(const Scheme& plain, const Scheme& after) {
  const auto key = [](const Morphism& m) { return m.op + " " + to_string(m.source); };
  std::map<std::string, std::vector<int>> places;
  for (size_t i = after.morphisms.size(); i-- > 0;) {
    places[key(after.morphisms[i])].push_back(static_cast<int>(i));
  }
  // Per object of the plain scheme: what its maker makes after the rewrite, and what its readers
  // read.
  std::vector<Value> made(plain.objects.size(), -1), seen(plain.objects.size(), -1);
  for (const Value in : plain.inputs) {
    made[in] = after.find(plain[in].source).value_or(-1);
  }
  for (const Morphism& m : plain.morphisms) {
    std::vector<int>& left = places[key(m)];
    if (left.empty()) continue;
    const Morphism& now = after.morphisms[left.back()];
    left.pop_back();
    for (size_t k = 0; k < m.inputs.size(); ++k) seen[m.inputs[k]] = now.inputs[k];
    for (size_t k = 0; k < m.outputs.size(); ++k) made[m.outputs[k]] = now.outputs[k];
  }
  for (size_t k = 0; k < plain.outputs.size(); ++k) seen[plain.outputs[k]] = after.outputs[k];
  std::vector<Rewritten> all;
  for (size_t i = 0; i < plain.morphisms.size(); ++i) {
    const Morphism& m = plain.morphisms[i];
    const Value y = m.outputs[0], x = m.inputs.empty() ? -1 : m.inputs[0];
    if (op_named(m.op).weight < 0 || seen[y] < 0 || seen[y] == made[y]) continue;
    all.push_back({static_cast<int>(i), seen[x] >= 0 ? seen[x] : made[x], made[y], seen[y]});
  }
  return all;
}

// The piece that computes the rewritten value from x, y and parameters, as a scheme of its own. Its
// inputs are x, y (if it is read), then the parameters.
Scheme piece_of(const Scheme& after, const Rewritten& r, const std::string& path) {
  std::vector<bool> needed(after.objects.size(), false);
  needed[r.out] = true;
  Scheme piece = after;
  piece.morphisms.clear();
  for (size_t i = after.morphisms.size(); i-- > 0;) {
    const Morphism& m = after.morphisms[i];
    const auto wanted = [&](Value v) { return needed[v] && v != r.x && v != r.y; };
    if (std::none_of(m.outputs.begin(), m.outputs.end(), wanted)) continue;
    for (const Value in : m.inputs) needed[in] = true;
    piece.morphisms.insert(piece.morphisms.begin(), m);
  }
  piece.inputs = {r.x};
  if (r.y >= 0) piece.inputs.push_back(r.y);
  for (const Value in : after.inputs) {
    if (!needed[in] || in == r.x || in == r.y) continue;
    if (after[in].role != Role::kParameter) {
      fail("'", path, "' cannot be merged: what the stack made of it reads '",
           to_string(after[in].source), "' and not only its operand");
    }
    piece.inputs.push_back(in);
  }
  piece.outputs = {r.out};
  piece[r.x].role = Role::kInput;
  if (r.y >= 0) piece[r.y].role = Role::kInput;
  return compact(std::move(piece));
}

using Parameters = SavedValues;

// The piece as a function: evaluates f(y, x) for pairs (y, x), a sample's rows at a time.
class Asked {
 public:
  Asked(const Scheme& piece, bool reads_y, const Parameters& parameters)
      : run_(to_reference(piece), make_plan(to_reference(piece), {.threads = num_threads()}),
             {.reference = true}),
        reads_y_(reads_y) {
    const Scheme& s = run_.scheme();
    for (size_t k = reads_y ? 2 : 1; k < s.inputs.size(); ++k) {
      write(s.inputs[k], parameters.at(to_string(s[s.inputs[k]].source)));
    }
  }

  std::vector<Numbers> answers(const std::vector<std::pair<Numbers, Numbers>>& asked) {
    const Scheme& s = run_.scheme();
    const Value x = s.inputs[0], out = s.outputs[0];
    const int64_t in_width = s[x].type.dim(-1), out_width = s[out].type.dim(-1);
    const int64_t rows = s[x].type.num_elements() / in_width;
    std::vector<Numbers> all;
    for (size_t first = 0; first < asked.size(); first += rows) {
      Numbers xs(rows * in_width, 0), ys(rows * out_width, 0);
      const size_t last = std::min<size_t>(asked.size(), first + rows);
      for (size_t j = first; j < last; ++j) {
        const auto& [y_row, x_row] = asked[j];
        std::copy(x_row.begin(), x_row.end(), xs.begin() + (j - first) * in_width);
        std::copy(y_row.begin(), y_row.end(), ys.begin() + (j - first) * out_width);
      }
      write(x, xs);
      if (reads_y_) write(s.inputs[1], ys);
      run_.step();
      const Numbers values = run_.values(out);
      for (size_t j = first; j < last; ++j) {
        const auto row = values.begin() + (j - first) * out_width;
        all.emplace_back(row, row + out_width);
      }
    }
    return all;
  }

 private:
  void write(Value v, const Numbers& numbers) {
    const Type& type = run_.scheme()[v].type;
    CHECK(type.num_elements() == static_cast<int64_t>(numbers.size()), "one value per element");
    CHECK(run_.plan().places[v].strides == dense_strides(type), "inputs of a piece are dense");
    run_.set_values(v, numbers);
  }

  Run run_;
  bool reads_y_;
};

double largest(const Numbers& numbers) {
  double most = 0;
  for (const double n : numbers) most = std::max(most, std::abs(n));
  return most;
}

class Merger {
 public:
  Merger(const Scheme& plain, const Scheme& after, Parameters& parameters)
      : plain_(plain), after_(after), parameters_(parameters), readers_(readers(plain)) {}

  // Merges what the stack added to one linear map into its weight and bias.
  void merge(const Rewritten& r) {
    const Morphism& m = plain_.morphisms[r.plain];
    path_ = m.source.path;
    const Value w = m.inputs[1];
    if (plain_[w].role != Role::kParameter) refuse("its matrix is computed, and not a parameter");
    const Scheme piece = piece_of(after_, r, path_);
    for (const Value in : piece.inputs) {
      if (piece[in].role == Role::kParameter) merged_.insert(to_string(piece[in].source));
    }
    const int64_t out = plain_[w].type.dim(0), in = plain_[w].type.dim(1);
    const Numbers old = parameters_.at(to_string(plain_[w].source));
    const bool has_bias = m.inputs.size() > 2;
    const Numbers bias =
        has_bias ? parameters_.at(to_string(plain_[m.inputs[2]].source)) : Numbers(out, 0.0);
    const auto column = [&](const Numbers& matrix, int64_t j) {
      Numbers c(out);
      for (int64_t o = 0; o < out; ++o) c[o] = matrix[o * in + j];
      return c;
    };
    const auto times = [&](const Numbers& matrix, const Numbers& x, Numbers sum) {
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t j = 0; j < in; ++j) sum[o] += matrix[o * in + j] * x[j];
      }
      return sum;
    };
    // Arguments: unit columns, zeros, the bias, and the random rows.
    std::vector<std::pair<Numbers, Numbers>> asked;
    for (int64_t j = 0; j < in; ++j) {
      Numbers unit(in, 0.0);
      unit[j] = 1;
      asked.emplace_back(column(old, j), std::move(unit));
    }
    asked.emplace_back(Numbers(out, 0.0), Numbers(in, 0.0));
    asked.emplace_back(bias, Numbers(in, 0.0));
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal;
    for (int p = 0; p < kProbes; ++p) {
      Numbers x(in);
      for (double& n : x) n = normal(random);
      asked.emplace_back(times(old, x, bias), x);
    }
    const bool reads_y = r.y >= 0;
    const std::vector<Numbers> answers = Asked(piece, reads_y, parameters_).answers(asked);
    const Numbers &origin = answers[in], &new_bias = answers[in + 1];
    Numbers fresh(old.size());
    for (int64_t j = 0; j < in; ++j) {
      for (int64_t o = 0; o < out; ++o) fresh[o * in + j] = answers[j][o] - origin[o];
    }
    for (int p = 0; p < kProbes; ++p) {
      const auto& [y, x] = asked[in + 2 + p];
      check_probe(answers[in + 2 + p], times(fresh, x, new_bias));
    }
    take(w, fresh, old);
    if (has_bias) {
      take(m.inputs[2], new_bias, bias);
    } else if (largest(new_bias) > kLinearUpTo * largest(fresh)) {
      refuse("the stack adds a constant to it, and the plain map has no bias to take it in");
    }
  }

  // Of everything that the stack added, something must have become part of a matrix.
  void check_complete() const {
    for (const Value in : after_.inputs) {
      const std::string name = to_string(after_[in].source);
      if (after_[in].role != Role::kParameter || plain_.find(after_[in].source)) continue;
      if (merged_.count(name)) continue;
      fail("'", name, "' cannot be merged: it stands beside no linear map of the model");
    }
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail("'", path_, "' cannot be merged: ", parts...);
  }

  void check_probe(const Numbers& found, const Numbers& wanted) const {
    Numbers difference(found.size());
    for (size_t i = 0; i < found.size(); ++i) difference[i] = found[i] - wanted[i];
    if (largest(difference) <= kLinearUpTo * std::max(largest(wanted), largest(found))) return;
    refuse("what the stack made of it is not linear in its operand, so no matrix is the same");
  }

  void take(Value parameter, const Numbers& fresh, const Numbers& old) {
    if (fresh == old) return;
    const std::string name = to_string(plain_[parameter].source);
    for (const int reader : readers_[parameter]) {
      const std::string& other = plain_.morphisms[reader].source.path;
      if (other != path_) refuse("its '", name, "' is tied: '", other, "' reads it too");
    }
    parameters_[name] = fresh;
  }

  const Scheme& plain_;
  const Scheme& after_;
  Parameters& parameters_;
  std::vector<std::vector<int>> readers_;
  std::set<std::string> merged_;
  std::string path_;
};

void write_folder(const SavePaths& from, const SavePaths& to, const Scheme& plain,
                  const Parameters& parameters, int64_t step, const std::string& model,
                  const std::string& weights) {
  std::vector<std::vector<float>> rounded;
  std::vector<SafetensorView> views;
  for (const Value in : plain.inputs) {
    if (plain[in].role != Role::kParameter) continue;
    const Numbers& numbers = parameters.at(to_string(plain[in].source));
    rounded.emplace_back(numbers.begin(), numbers.end());
    views.push_back({.name = to_string(plain[in].source),
                     .dtype = "F32",
                     .shape = {},
                     .data = rounded.back().data(),
                     .size = plain[in].type.bytes()});
    for (const Axis& axis : plain[in].type.axes) views.back().shape.push_back(axis.size);
  }
  nlohmann::json about = nlohmann::json::object();
  if (!weights.empty()) about["weights"] = weights;
  write_derived_run(from, to, "", "merged", about, [&] { save_model(to, views, step, model); });
}

// A run, its model, and what its stack makes of the model's linear maps.
struct RewrittenRun {
  explicit RewrittenRun(const fs::path& run)
      : from(run),
        resolved(saved_config(run)),
        model(resolved.text, {.batch = 1,
                              .context = resolved.config.context,
                              .seq = resolved.config.seq,
                              .vocab = load_tokenizer(from.tokenizer())->vocab_of_model(),
                              .settings = resolved.config.settings}),
        forward(model.forward()),
        stack(parse_stack(resolved.config.step.stack)),
        plain(without_randomness(forward)),
        after(evaluation_scheme(forward, rewriting_part(stack), resolved.config.step)),
        rewritten(find_rewritten(plain, after)) {}

  void check_any() const {
    if (!rewritten.empty()) return;
    fail(from.folder.string(), ": there is nothing to merge: ",
         resolved.config.step.stack.empty()
             ? "this run has no stack"
             : "its stack '" + print(stack) + "' rewrites no linear map");
  }

  // The values of the run's save, which must be of this model, or of a state in their place.
  Parameters parameters(SavedModel& saved, const std::string& weights = "") const {
    const Scheme evaluation = evaluation_scheme(forward, stack, resolved.config.step);
    saved.check_fits(evaluation);
    saved.check_model(print_of(model, resolved.printed_with));
    if (!weights.empty()) saved.take_weights(evaluation, weights);
    return saved_values(saved, evaluation);
  }

  SavePaths from;
  ResolvedConfig resolved;
  BoundModel model;
  Scheme forward;
  Stack stack;
  Scheme plain, after;
  std::vector<Rewritten> rewritten;
};

// The two thin matrices that the stack put beside a linear map. Which is which their shapes tell;
// the scale is found by evaluating the piece for random ones, which also shows that the piece is
// nothing else.
ThinPair thin_pair(const Scheme& plain, const Scheme& after, const Rewritten& r) {
  const Morphism& m = plain.morphisms[r.plain];
  const std::string& path = m.source.path;
  const Type& type = plain[m.inputs[1]].type;
  const auto refuse = [&](const char* why) {
    fail("what the stack adds to '", path, "' is not a product of two thin matrices: ", why);
  };
  if (r.y < 0) refuse("it does not add to the map");
  const Scheme piece = piece_of(after, r, path);
  if (piece.inputs.size() != 4) refuse("it has other parameters");
  const auto source_of = [&](size_t k) { return piece[piece.inputs[k]].source; };
  const auto type_of = [&](size_t k) { return piece[piece.inputs[k]].type; };
  const bool swapped = type_of(2).rank() == 2 && type_of(2).dim(1) != type.dim(1);
  const size_t a = swapped ? 3 : 2, b = swapped ? 2 : 3;
  if (type_of(a).rank() != 2 || type_of(b).rank() != 2 || type_of(a).dim(1) != type.dim(1) ||
      type_of(b).dim(0) != type.dim(0) || type_of(a).dim(0) != type_of(b).dim(1)) {
    refuse("its parameters have other shapes");
  }
  const int64_t rank = type_of(a).dim(0), in = type.dim(1), out = type.dim(0);
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const auto drawn = [&](int64_t count) {
    Numbers numbers(count);
    for (double& n : numbers) n = normal(random);
    return numbers;
  };
  const Numbers some_a = drawn(rank * in), some_b = drawn(out * rank), x = drawn(in);
  const Parameters some = {{to_string(source_of(a)), some_a}, {to_string(source_of(b)), some_b}};
  const Numbers found = Asked(piece, true, some).answers({{Numbers(out, 0.0), x}})[0];
  Numbers inner(rank, 0.0), product(out, 0.0);
  for (int64_t k = 0; k < rank; ++k) {
    for (int64_t j = 0; j < in; ++j) inner[k] += some_a[k * in + j] * x[j];
    for (int64_t o = 0; o < out; ++o) product[o] += some_b[o * rank + k] * inner[k];
  }
  double along = 0, square = 0;
  for (int64_t o = 0; o < out; ++o)
    along += found[o] * product[o], square += product[o] * product[o];
  const double scale = along / square;
  for (int64_t o = 0; o < out; ++o) {
    if (std::abs(found[o] - scale * product[o]) > kLinearUpTo * largest(found)) {
      refuse("it computes something else");
    }
  }
  return {.weight = plain[m.inputs[1]].source,
          .a = source_of(a),
          .b = source_of(b),
          .rank = rank,
          .scale = scale};
}

}  // namespace

bool has_adapters(const fs::path& run) { return !RewrittenRun(run).rewritten.empty(); }

std::optional<std::string> map_changed_by_stack(const fs::path& folder,
                                                const SavedValues& parameters) {
  const RewrittenRun run(folder);
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  for (const Rewritten& r : run.rewritten) {
    const Morphism& m = run.plain.morphisms[r.plain];
    const std::string& path = m.source.path;
    const Object& w = run.plain[m.inputs[1]];
    const Scheme piece = piece_of(run.after, r, path);
    const auto is_known = [&](Value in) {
      return piece[in].role != Role::kParameter || parameters.count(to_string(piece[in].source));
    };
    if (w.role != Role::kParameter ||
        !std::all_of(piece.inputs.begin(), piece.inputs.end(), is_known)) {
      return path;
    }
    const int64_t out = w.type.dim(0), in = w.type.dim(1);
    const Numbers& matrix = parameters.at(to_string(w.source));
    std::vector<std::pair<Numbers, Numbers>> asked;
    for (int p = 0; p < kProbes; ++p) {
      Numbers x(in);
      for (double& n : x) n = normal(random);
      Numbers y = m.inputs.size() > 2 ? parameters.at(to_string(run.plain[m.inputs[2]].source))
                                      : Numbers(out);
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t j = 0; j < in; ++j) y[o] += matrix[o * in + j] * x[j];
      }
      asked.emplace_back(std::move(y), std::move(x));
    }
    const std::vector<Numbers> answers = Asked(piece, r.y >= 0, parameters).answers(asked);
    for (int p = 0; p < kProbes; ++p) {
      const Numbers& y = asked[p].first;
      Numbers difference(out);
      for (int64_t o = 0; o < out; ++o) difference[o] = answers[p][o] - y[o];
      if (largest(difference) > kSameUpTo * largest(y)) return path;
    }
  }
  return std::nullopt;
}

ThinPairs thin_pairs(const fs::path& folder) {
  const RewrittenRun run(folder);
  run.check_any();
  SavedModel saved(run.from);
  const Parameters parameters = run.parameters(saved);
  ThinPairs all{.model = run.model, .pairs = {}};
  for (const Rewritten& r : run.rewritten) {
    ThinPair pair = thin_pair(run.plain, run.after, r);
    pair.a_values = parameters.at(to_string(pair.a));
    pair.b_values = parameters.at(to_string(pair.b));
    all.pairs.push_back(std::move(pair));
  }
  return all;
}

std::vector<ThinPair> thin_pairs(const Scheme& forward, const Stack& stack,
                                 const StepOptions& step) {
  const Scheme plain = without_randomness(forward);
  const Scheme after = evaluation_scheme(forward, rewriting_part(stack), step);
  std::vector<ThinPair> pairs;
  for (const Rewritten& r : find_rewritten(plain, after)) {
    pairs.push_back(thin_pair(plain, after, r));
  }
  return pairs;
}

MergedModel merged_model(const fs::path& folder, const std::string& weights) {
  RewrittenRun run(folder);
  if (weights.empty()) run.check_any();
  SavedModel saved(run.from);
  MergedModel merged{.model = run.model,
                     .plain = run.plain,
                     .parameters = run.parameters(saved, weights),
                     .result = {.step = saved.step(), .merged = {}}};
  Merger merger(run.plain, run.after, merged.parameters);
  const Roles roles(run.plain);
  for (const Rewritten& r : run.rewritten) {
    merger.merge(r);
    ++merged.result.merged[std::string(name(roles.use_of(r.plain)))];
  }
  merger.check_complete();
  return merged;
}

MergeResult merge_run(const fs::path& run, const fs::path& out, const std::string& weights) {
  const SavePaths from(run), to(out);
  check_is_run(from);
  check_unheld(to);
  const MergedModel merged = merged_model(run, weights);
  write_folder(from, to, merged.plain, merged.parameters, merged.result.step,
               print_of(merged.model, saved_config(run).printed_with), weights);
  return merged.result;
}

}  // namespace adjoint
