// Optimizers that are written as text, against plain loops in float64: whole steps of a tiny model
// with gradients by central differences; the steps that must change nothing; and what is refused.
#include "functors/optimizer_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "functors/numeric_gradient.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

// ids -> a row of a table -> two linear maps, a tall and a wide one -> readout -> cross entropy.
constexpr int kRows = 6, kWidth = 3, kInner = 5, kThin = 2, kClasses = 4, kBatch = 5;
constexpr const char* kModel = R"(scheme model:
  input %0 ids: i32[b=5]
  input %1 targets: i32[b=5]
  parameter %2 table: f32[v=6, h=3]
  parameter %3 up.weight: f32[i=5, h=3]
  parameter %4 up.bias: f32[i=5]
  parameter %5 down.weight: f32[t=2, i=5]
  parameter %6 out.weight: f32[c=4, t=2]
  parameter %7 out.bias: f32[c=4]
  %8 x: f32[b=5, h=3] = embed(%0, %2) @x
  %9 u: f32[b=5, i=5] = linear(%8, %3, %4) @u
  %10 a: f32[b=5, i=5] = tanh(%9) @a
  %11 d: f32[b=5, t=2] = linear(%10, %5) @d
  %12 z: f32[b=5, t=2] = tanh(%11) @z
  %13 y: f32[b=5, c=4] = linear(%12, %6, %7) @y
  %14 loss: f32[] metric, %15 loss.count: f32[] metric, %16 loss.lse: f32[b=5] = cross_entropy(%13, %1) {ignore=-1} @loss
  return %14, %15
)";

struct Parameter {
  const char* path;
  int rows, columns;  // of a vector: 0 rows
  bool muon;          // neither table nor readout
};
constexpr Parameter kParameters[] = {
    {"table", kRows, kWidth, false},        {"up.weight", kInner, kWidth, true},
    {"up.bias", 0, kInner, false},          {"down.weight", kThin, kInner, true},
    {"out.weight", kClasses, kThin, false}, {"out.bias", 0, kClasses, false}};
using Parameters = std::vector<Numbers>;

struct Batch {
  Numbers ids, targets;
};
Batch batch_at(int step) {
  Batch b;
  for (int i = 0; i < kBatch; ++i) {
    b.ids.push_back((3 * i + step) % (kRows - 1));  // the last row is never read
    b.targets.push_back(i == step % kBatch ? -1 : (i + step) % kClasses);
  }
  return b;
}
Batch all_ignored() {
  Batch b = batch_at(1);
  b.targets.assign(kBatch, -1);
  return b;
}

double mean_loss(const Parameters& p, const Batch& b) {
  double sum = 0, count = 0;
  for (int row = 0; row < kBatch; ++row) {
    if (b.targets[row] < 0) continue;
    double a[kInner], z[kThin], total = 0, own = 0;
    for (int i = 0; i < kInner; ++i) {
      a[i] = p[2][i];
      for (int h = 0; h < kWidth; ++h) {
        a[i] += p[1][i * kWidth + h] * p[0][static_cast<int>(b.ids[row]) * kWidth + h];
      }
      a[i] = std::tanh(a[i]);
    }
    for (int t = 0; t < kThin; ++t) {
      z[t] = 0;
      for (int i = 0; i < kInner; ++i) z[t] += p[3][t * kInner + i] * a[i];
      z[t] = std::tanh(z[t]);
    }
    for (int c = 0; c < kClasses; ++c) {
      double y = p[5][c];
      for (int t = 0; t < kThin; ++t) y += p[4][c * kThin + t] * z[t];
      if (c == static_cast<int>(b.targets[row])) own = y;
      total += std::exp(y);
    }
    sum += std::log(total) - own;
    count += 1;
  }
  return sum / count;
}

Parameters gradient_of(const Parameters& p, const Batch& b) {
  return numeric_gradient(p, [&](const Parameters& at) { return mean_loss(at, b); });
}

// ---- the papers, in plain loops; each keeps what it likes

struct Paper {
  double rate = 0, decay = 0;
  int t = 0;
  virtual ~Paper() = default;
  virtual void move(size_t k, Numbers& p, const Numbers& g) = 0;
};

struct Adam : Paper {
  Parameters m{6}, v{6};
  double beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  void move(size_t k, Numbers& p, const Numbers& g) override {
    m[k].resize(p.size()), v[k].resize(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      m[k][i] = beta1 * m[k][i] + (1 - beta1) * g[i];
      v[k][i] = beta2 * v[k][i] + (1 - beta2) * g[i] * g[i];
      const double first = m[k][i] / (1 - std::pow(beta1, t));
      const double second = v[k][i] / (1 - std::pow(beta2, t));
      p[i] -= rate * (first / (std::sqrt(second) + eps) + decay * p[i]);
    }
  }
};

struct Lion : Paper {
  Parameters m{6};
  double beta1 = 0.9, beta2 = 0.99;
  void move(size_t k, Numbers& p, const Numbers& g) override {
    m[k].resize(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const double u = beta1 * m[k][i] + (1 - beta1) * g[i];
      p[i] -= rate * (static_cast<double>(u > 0) - static_cast<double>(u < 0) + decay * p[i]);
      m[k][i] = beta2 * m[k][i] + (1 - beta2) * g[i];
    }
  }
};

double root_mean_square(const Numbers& x) {
  double sum = 0;
  for (const double each : x) sum += each * each;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

struct Adafactor : Paper {
  Parameters r{6}, c{6}, v{6};
  bool relative = false;
  void move(size_t k, Numbers& p, const Numbers& g) override {
    const double beta = 1 - std::pow(t, -0.8), eps = 1e-30;
    const int rows = kParameters[k].rows, columns = kParameters[k].columns;
    Numbers u = g;
    if (rows == 0) {
      v[k].resize(p.size());
      for (size_t i = 0; i < p.size(); ++i) {
        v[k][i] = beta * v[k][i] + (1 - beta) * (g[i] * g[i] + eps);
        u[i] /= std::sqrt(v[k][i]);
      }
    } else {
      r[k].resize(rows), c[k].resize(columns);
      for (double& x : r[k]) x *= beta;
      for (double& x : c[k]) x *= beta;
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
          const double square = g[i * columns + j] * g[i * columns + j] + eps;
          r[k][i] += (1 - beta) * square / columns;
          c[k][j] += (1 - beta) * square / rows;
        }
      }
      double mean = 0;
      for (const double x : r[k]) mean += x / rows;
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) u[i * columns + j] /= std::sqrt(r[k][i] * c[k][j] / mean);
      }
    }
    const double longer = std::max(1.0, root_mean_square(u));
    const double size = relative ? std::max(0.001, root_mean_square(p)) : 1;
    for (size_t i = 0; i < p.size(); ++i) p[i] -= rate * (size * u[i] / longer + decay * p[i]);
  }
};

struct Muon : Adam {
  void move(size_t k, Numbers& p, const Numbers& g) override {
    if (!kParameters[k].muon) return Adam::move(k, p, g);
    const int rows = kParameters[k].rows, columns = kParameters[k].columns;
    m[k].resize(p.size());
    Numbers u(p.size());
    double norm = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      m[k][i] = 0.95 * m[k][i] + g[i];
      u[i] = g[i] + 0.95 * m[k][i];
      norm += u[i] * u[i];
    }
    for (double& x : u) x /= std::sqrt(norm) + 1e-7;
    for (int step = 0; step < 5; ++step) u = iterated(u, rows, columns);
    const double scale = 0.2 * std::sqrt(std::max(rows, columns));
    for (size_t i = 0; i < p.size(); ++i) p[i] -= rate * (scale * u[i] + decay * p[i]);
  }
  // 3.4445 X - 4.775 (X X^T) X + 2.0315 (X X^T)^2 X, never transposed.
  static Numbers iterated(const Numbers& x, int rows, int columns) {
    const auto times_gram = [&](const Numbers& y) {
      Numbers gram(rows * rows), out(rows * columns);
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < rows; ++j) {
          for (int k = 0; k < columns; ++k)
            gram[i * rows + j] += x[i * columns + k] * x[j * columns + k];
        }
      }
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < rows; ++j) {
          for (int k = 0; k < columns; ++k)
            out[i * columns + k] += gram[i * rows + j] * y[j * columns + k];
        }
      }
      return out;
    };
    const Numbers once = times_gram(x), twice = times_gram(once);
    Numbers out(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      out[i] = 3.4445 * x[i] - 4.775 * once[i] + 2.0315 * twice[i];
    return out;
  }
};

std::unique_ptr<Paper> paper_of(const std::string& optimizer) {
  if (optimizer.starts_with("lion")) return std::make_unique<Lion>();
  if (optimizer.starts_with("muon")) return std::make_unique<Muon>();
  if (optimizer.starts_with("adafactor")) {
    auto paper = std::make_unique<Adafactor>();
    paper->relative = optimizer.find("relative=1") != std::string::npos;
    return paper;
  }
  return std::make_unique<Adam>();
}

// ---- ours

// So little work is slower on several threads, much slower where others want them too.
struct OneThread {
  OneThread() { set_num_threads(1); }
  ~OneThread() { set_num_threads(before); }
  int before = num_threads();
};

class Stepper {
 public:
  explicit Stepper(const StepOptions& options)
      : step(training_step(parse_scheme(kModel), options)),
        run(step, make_plan(step, {.threads = num_threads()}), {.poison = true}) {
    std::mt19937 random(21);
    std::normal_distribution<float> normal(0, 0.7f);
    initialize(run, 0);
    for (const Parameter& parameter : kParameters) {
      Numbers x(step[at(parameter.path)].type.num_elements());
      for (double& value : x) value = static_cast<double>(normal(random)) + 0.3;
      run.set_values(at(parameter.path), x);
    }
  }

  Value at(const std::string& path, const std::string& facet = "") const {
    return step.find({path, facet}).value();
  }
  Parameters parameters() const {
    Parameters p;
    for (const Parameter& parameter : kParameters) p.push_back(run.values(at(parameter.path)));
    return p;
  }
  void take(const Batch& b, double rate) {
    run.set_values(at("ids"), b.ids);
    run.set_values(at("targets"), b.targets);
    run.set_number(at("rate"), rate);
    run.step();
  }
  // Parameters, states, the count of steps and the controls, to the bit.
  std::vector<std::byte> state() const {
    return {run.arena(), run.arena() + run.plan().state_end.count};
  }

  OneThread one_thread;
  Scheme step;
  Run run;
};

// A file that is gone when the test is over.
struct TextFile {
  explicit TextFile(const std::string& text, const std::string& name = "my.optimizer")
      : path(std::filesystem::temp_directory_path() /
             ("optimizer_text_" + std::to_string(getpid())) / name) {
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, text);
  }
  ~TextFile() { std::filesystem::remove_all(path.parent_path()); }
  std::filesystem::path path;
};

constexpr const char* kAdamText = R"(one_minus_exp y:
  h = tanh(y/2)
  z = -2*h/(1 - h)
optimizer adam(beta1 = 0.9, beta2 = 0.99, eps = 1e-8):
  state m like p
  state v like p
  m = beta1*m + (1 - beta1)*g
  v = beta2*v + (1 - beta2)*g*g
  first = m/one_minus_exp(log(beta1)*step)
  second = v/one_minus_exp(log(beta2)*step)
  p = p - rate*(first/(sqrt(second) + eps) + decay*p)
)";

// The same as one would write it.
constexpr const char* kPlainAdamText = R"(optimizer adam(beta1 = 0.9, beta2 = 0.99, eps = 1e-8):
  state m like p
  state v like p
  m = beta1*m + (1 - beta1)*g
  v = beta2*v + (1 - beta2)*g*g
  p = p - rate*(m/(1 - pow(beta1, step))/(sqrt(v/(1 - pow(beta2, step))) + eps) + decay*p)
)";

// 1 - beta^step in float32 has lost four digits where beta^step is rounded first.
TEST(OptimizerText, APowerNearOneKeepsTheDigitsOfItsDifference) {
  const TextFile file(
      "optimizer my(beta = 0.9999):\n  state a like rate\n  state b like rate\n  state c like "
      "rate\n"
      "  a = 1 - pow(beta, step)\n  b = 3*pow(beta, step) - 3\n  c = 2 - exp(step/1000)*2\n"
      "  p = p - rate*g\n");
  Stepper ours({.optimizer = file.path.string()});
  for (int step = 1; step <= 10; ++step) {
    ours.take(batch_at(step), 0.01);
    const double difference = -std::expm1(step * std::log(0.9999));
    const auto expect = [&](const char* state, double wanted) {
      EXPECT_NEAR(ours.run.number(ours.at("table", std::string("my.") + state)) / wanted, 1, 5e-7)
          << state << ", step " << step;
    };
    expect("a", difference);
    expect("b", -3 * difference);
    expect("c", -2 * std::expm1(step / 1000.0));
  }
}

TEST(OptimizerText, AdamWAsTextIsTheOp) {
  const TextFile file(kPlainAdamText);
  Stepper text({.optimizer = file.path.string() + "(beta2=0.9999)"});
  Stepper op({.optimizer = "adamw(beta2=0.9999)"});
  for (int step = 0; step < 10; ++step) {
    text.take(batch_at(step), 1.0);
    op.take(batch_at(step), 1.0);
    const Parameters a = text.parameters(), b = op.parameters();
    for (size_t k = 0; k < a.size(); ++k) {
      for (size_t i = 0; i < a[k].size(); ++i) {
        EXPECT_NEAR(a[k][i], b[k][i], 2e-6 * (1 + step)) << step << ", " << kParameters[k].path;
      }
    }
  }
}

const std::vector<std::string> kTexts = {"lion", "adafactor", "adafactor(relative=1)", "muon"};

void compare_steps(const StepOptions& options, double within) {
  SCOPED_TRACE(options.optimizer + " clip=" + std::to_string(options.clip) +
               " decay=" + std::to_string(options.weight_decay));
  Stepper ours(options);
  Parameters p = ours.parameters();
  const std::unique_ptr<Paper> paper = paper_of(options.optimizer);
  for (int step = 0; step < 5; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    Parameters g = gradient_of(p, batch_at(step));
    double squares = 0;
    for (const Numbers& numbers : g) {
      for (const double x : numbers) squares += x * x;
    }
    const double norm = std::sqrt(squares);
    const double shorten = options.clip > 0 && norm > options.clip ? options.clip / norm : 1;
    paper->rate = 0.05 / (1 + step);
    ++paper->t;
    for (size_t k = 0; k < p.size(); ++k) {
      for (double& x : g[k]) x *= shorten;
      paper->decay = kParameters[k].rows ? options.weight_decay : 0;
      paper->move(k, p[k], g[k]);
    }
    ours.take(batch_at(step), paper->rate);
    const Parameters got = ours.parameters();
    for (size_t k = 0; k < got.size(); ++k) {
      for (size_t i = 0; i < got[k].size(); ++i) {
        ASSERT_NEAR(got[k][i], p[k][i], within) << kParameters[k].path << "[" << i << "]";
      }
    }
  }
}

TEST(OptimizerText, FollowsThePapersForFiveSteps) {
  for (const std::string& optimizer : kTexts) {
    for (const double clip : {0.0, 0.05, 1000.0}) {
      for (const double decay : {0.0, 0.4}) {
        compare_steps({.optimizer = optimizer, .weight_decay = decay, .clip = clip}, 2e-5);
      }
    }
  }
}

// So the notation is known to say what the op does.
TEST(OptimizerText, AdamWAsTextGivesTheOpsNumbers) {
  const TextFile file(kAdamText);
  for (const double clip : {0.0, 1.0}) {
    compare_steps({.optimizer = file.path.string(), .clip = clip}, 2e-5);
    Stepper op({.optimizer = "adamw", .clip = clip});
    Stepper text({.optimizer = file.path.string(), .clip = clip});
    for (int step = 0; step < 6; ++step) {
      op.take(batch_at(step), 0.05);
      text.take(batch_at(step), 0.05);
      const Parameters a = op.parameters(), b = text.parameters();
      for (size_t k = 0; k < a.size(); ++k) EXPECT_LE(relative_error(b[k], a[k]), 3e-7) << k;
    }
    EXPECT_EQ(text.run.number(text.at("optimizer", "adam.steps")), 6);
  }
}

TEST(OptimizerText, NumbersAreGivenAsAFunctorsAre) {
  Stepper ours({.optimizer = "lion(beta1=0.5, beta2=0.25)", .weight_decay = 0, .clip = 0});
  Lion paper;
  paper.beta1 = 0.5, paper.beta2 = 0.25, paper.rate = 0.05;
  Parameters p = ours.parameters();
  for (int step = 0; step < 3; ++step) {
    const Parameters g = gradient_of(p, batch_at(step));
    for (size_t k = 0; k < p.size(); ++k) paper.move(k, p[k], g[k]);
    ours.take(batch_at(step), 0.05);
  }
  for (size_t k = 0; k < p.size(); ++k) EXPECT_LE(relative_error(ours.parameters()[k], p[k]), 1e-5);
  // Those of an op are the run's unless they are said.
  const StepOptions said{.optimizer = "adamw(0.25, beta2=0.5)"};
  const StepOptions run{.optimizer = "adamw", .beta1 = 0.25, .beta2 = 0.5};
  EXPECT_EQ(training_step(parse_scheme(kModel), said), training_step(parse_scheme(kModel), run));
}

// A state begins as its line says; shapes are those of any term of p.
TEST(OptimizerText, StatesHaveTheShapeOfATermAndBeginAsTold) {
  const TextFile file(R"(optimizer shapes(start = 3):
  state mean_of_rows like mean(p, -1)
  state all like p = 2*start
  state calls like rate = -1
  mean_of_rows = mean_of_rows + mean(p, -1)
  all, calls = all + calls, calls + 1
  p = p - rate*g
)");
  StepOptions options{.optimizer = file.path.string() + "(start=5)", .weight_decay = 0};
  Stepper ours(options);
  const auto state = [&](const char* name) {
    return ours.step[ours.at("up.weight", std::string("shapes.") + name)];
  };
  EXPECT_EQ(to_string(state("mean_of_rows").type), "f32[i=5]");
  EXPECT_EQ(to_string(state("all").type), "f32[i=5, h=3]");
  EXPECT_EQ(to_string(state("calls").type), "f32[]");
  const Numbers before = ours.run.values(ours.at("up.weight"));
  for (int step = 0; step < 3; ++step) ours.take(batch_at(step), 0);
  const Numbers means = ours.run.values(ours.at("up.weight", "shapes.mean_of_rows"));
  for (int i = 0; i < kInner; ++i) {
    const double sum = before[3 * i] + before[3 * i + 1] + before[3 * i + 2];
    EXPECT_NEAR(means[i], sum, 1e-5);  // a third of it, three times
  }
  EXPECT_EQ(ours.run.number(ours.at("up.weight", "shapes.calls")), 2);
  for (const double x : ours.run.values(ours.at("up.weight", "shapes.all"))) {
    EXPECT_EQ(x, 10 - 1 + 0 + 1);
  }
}

TEST(OptimizerText, NothingCountedLeavesEverythingToTheBit) {
  for (const std::string& optimizer : kTexts) {
    for (const double clip : {0.0, 1.0}) {
      SCOPED_TRACE(optimizer + " clip=" + std::to_string(clip));
      Stepper ours({.optimizer = optimizer, .clip = clip});
      for (const int taken : {0, 1}) {  // from the very first step, too
        ours.run.set_number(ours.at("rate"), 0.25);
        const auto before = ours.state();
        ours.take(all_ignored(), 0.25);
        EXPECT_EQ(ours.state(), before) << taken;
        ours.take(batch_at(taken), 0.25);
        EXPECT_NE(ours.state(), before) << "and the next step goes on";
      }
    }
  }
}

TEST(OptimizerText, AGradientThatIsNoNumberLeavesEverythingToTheBitWhenClipping) {
  for (const std::string& optimizer : kTexts) {
    for (const double bad : {double{NAN}, double{INFINITY}}) {
      SCOPED_TRACE(optimizer + " " + std::to_string(bad));
      Stepper ours({.optimizer = optimizer, .clip = 1});
      ours.take(batch_at(0), 0.1);
      Numbers bias = ours.run.values(ours.at("out.bias"));
      bias[2] = bad;
      ours.run.set_values(ours.at("out.bias"), bias);
      ours.run.set_number(ours.at("rate"), 0.25);
      const auto before = ours.state();
      ours.take(batch_at(1), 0.25);
      EXPECT_EQ(ours.state(), before);
    }
  }
}

// What works on elements is one call, as adamw is; so gang_updates finds it.
TEST(OptimizerText, WhatWorksOnElementsIsOneCallPerParameter) {
  const TextFile adam(kAdamText);
  for (const std::string& optimizer : {std::string("lion"), adam.path.string()}) {
    for (const bool gangs : {false, true}) {
      const auto updates = [&](const std::string& which) {
        const char* stack = gangs ? "" : "-gang_updates | -fuse | -simplify";
        const Scheme step =
            training_step(parse_scheme(kModel), {.optimizer = which, .stack = stack});
        return std::count_if(step.morphisms.begin(), step.morphisms.end(), [&](const Morphism& m) {
          return m.phase == Phase::kUpdate && step[m.outputs[0]].role == Role::kParameter;
        });
      };
      EXPECT_EQ(updates(optimizer), updates("adamw")) << optimizer;
      EXPECT_EQ(updates(optimizer), gangs ? 2 : 6);
    }
  }
}

TEST(OptimizerText, EveryTextThatWeShipIsReadAndNamesItsPaper) {
  for (const OptimizerFile& file : optimizer_files()) {
    const OptimizerText text = parse_optimizer(file.text, file.name);
    EXPECT_EQ(text.name + ".optimizer", file.name);
    EXPECT_NE(text.summary.find("20"), std::string::npos) << file.name << ": " << text.summary;
  }
  EXPECT_GE(optimizer_files().size(), 3U);
}

std::string refusal(const std::string& text) {
  const TextFile file(text);
  try {
    training_step(parse_scheme(kModel), {.optimizer = file.path.string()});
  } catch (const Error& e) {
    std::string message = e.what();
    const size_t at = message.find("my.optimizer");
    return at == std::string::npos ? message : message.substr(at);
  }
  return "accepted";
}

TEST(OptimizerText, RefusesWithFileLineColumnWantedAndFound) {
  const std::pair<const char*, const char*> cases[] = {
      {"optimizer a:\n  p = p - rate*h\n",
       "my.optimizer:2:16: there is no object or number 'h' here"},
      {"optimizer a:\n  p = p - rte*g\n", "did you mean 'rate'?"},
      {"optimizer a:\n  q = p - rate*g\n",
       "my.optimizer:1:1: wanted a line 'p = ...': this updates no parameter"},
      {"optimizer a:\n  state m like p\n  p = p - rate*m\n",
       "my.optimizer:2:9: state 'm' is never written: wanted a line 'm = ...'"},
      {"optimizer a:\n  state m like p\n  m = mean(g, -1)\n  p = p - rate*g\n",
       "my.optimizer:3:3: 'm' stays what it is, f32[v=6, h=3], found f32["},
      {"optimizer a:\n  p = rate\n", "my.optimizer:2:3: 'p' stays what it is, f32["},
      {"optimizer a:\n  p = 1\n", "'the next p' is a number"},
      {"optimizer a:\n  state m like q\n  m = g\n  p = g\n",
       "my.optimizer:2:16: there is no object or number 'q' here"},
      {"optimizer a:\n  state m as p\n  m = g\n  p = g\n",
       "my.optimizer:2:11: wanted 'like' and a term that has the state's shape, found 'as'"},
      {"optimizer a:\n  state p like g\n  p = g\n",
       "my.optimizer:2:9: 'p' is already the name of something"},
      {"optimizer a(b = 1, b = 2):\n  p = g\n",
       "my.optimizer:1:20: 'b' is already the name of something"},
      {"optimizer a(b):\n  p = g\n", "my.optimizer:1:14: wanted '=' and what it is unless said"},
      {"optimizer a:\n  when rank(p) == 2:\n    p = g\n",
       "my.optimizer:2:3: wanted 'otherwise' after the last case"},
      {"optimizer a:\n  when rank(p) == 2:\n    p = g\n  otherwise adamv\n",
       "my.optimizer:4:13: there is no optimizer 'adamv'"},
      {"optimizer a:\n  otherwise adamw\n  p = g\n",
       "my.optimizer:3:3: wanted nothing after 'otherwise'"},
      {"optimizer a:\n  when rnk == 2:\n    p = g\n  otherwise adamw\n",
       "my.optimizer:2:8: there is no number 'rnk' here"},
      {"optimizer a:\n  when dim(p, 4) == 2:\n    p = g\n  otherwise adamw\n",
       "my.optimizer:2:15: dim: wanted an axis of [v=6, h=3] by a number from -2 to 1, found 4"},
      {"optimizer a:\n  p = p - rate*param(3)\n", "an optimizer has states, and no parameter"},
      {"optimizer a:\n  p = g\noptimizer b:\n  p = g\n",
       "my.optimizer:3:1: a file has one optimizer, and this is its second"},
      {"model x:\n  y = x\noptimizer b:\n  p = g\n",
       "my.optimizer:1:1: the name of box 'model' is taken"},
      {"box x:\n  y = x\n", "wanted 'optimizer' to begin an optimizer, found the end of the text"},
      {"optimizer a:\n  p = p - rate*contract(g, g, \"ij,jk->ik\")\n",
       "(p is 'table', f32[v=6, h=3])"},
  };
  for (const auto& [text, wanted] : cases) {
    const std::string found = refusal(text);
    EXPECT_NE(found.find(wanted), std::string::npos) << text << "\nsays: " << found;
  }
  const auto named = [](const char* optimizer) {
    try {
      find_optimizer(optimizer, {});
      return std::string("accepted");
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  EXPECT_NE(named("lyon").find("did you mean 'lion'?"), std::string::npos);
  EXPECT_EQ(
      named("lion(beta3=1)"),
      "lion: there is no parameter 'beta3'; it takes beta1=0.9, beta2=0.99; did you mean 'beta1'?");
  EXPECT_EQ(named("sgd(momentum=1)"), "sgd: there is no parameter 'momentum'; it takes nothing");
  EXPECT_NE(named("lion(beta1=much)").find("must be a number, found 'much'"), std::string::npos);
}

}  // namespace
}  // namespace adjoint
