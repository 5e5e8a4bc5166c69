// Whole steps of a tiny model against the papers' formulas, written here in float64 with gradients
// by central differences; and the steps that must change nothing.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "functors/numeric_gradient.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

// ids -> a row of a table -> layer norm -> linear map -> cross entropy; one target in five ignored.
constexpr int kRows = 6, kWidth = 3, kClasses = 4, kBatch = 5, kIgnored = -1;
constexpr const char* kModel = R"(scheme model:
  input %0 ids: i32[b=5]
  input %1 targets: i32[b=5]
  parameter %2 table: f32[v=6, h=3]
  parameter %3 norm.gain: f32[h=3]
  parameter %4 norm.shift: f32[h=3]
  parameter %5 out.weight: f32[c=4, h=3]
  parameter %6 out.bias: f32[c=4]
  %7 x: f32[b=5, h=3] = embed(%0, %2) @x
  %8 n: f32[b=5, h=3] = layer_norm(%7, %3, %4) {eps=1e-05} @n
  %9 y: f32[b=5, c=4] = linear(%8, %5, %6) @y
  %10 loss: f32[] metric, %11 loss.count: f32[] metric, %12 loss.lse: f32[b=5] = cross_entropy(%9, %1) {ignore=-1} @loss
  return %10, %11
)";
const std::vector<std::string> kParameters = {"table", "norm.gain", "norm.shift", "out.weight",
                                              "out.bias"};
const std::vector<bool> kDecays = {true, false, false, true, false};

struct Batch {
  Numbers ids, targets;
};
Batch batch(int step) {
  Batch b;
  for (int i = 0; i < kBatch; ++i) {
    b.ids.push_back((3 * i + step) % (kRows - 1));  // the last row is never read
    b.targets.push_back(i == step % kBatch ? kIgnored : (i + step) % kClasses);
  }
  return b;
}

using Parameters = std::vector<Numbers>;

// The mean loss over the rows whose target counts.
double mean_loss(const Parameters& p, const Batch& b) {
  double sum = 0, count = 0;
  for (int row = 0; row < kBatch; ++row) {
    if (b.targets[row] == kIgnored) continue;
    double x[kWidth], mean = 0, variance = 0;
    for (int i = 0; i < kWidth; ++i) x[i] = p[0][static_cast<int>(b.ids[row]) * kWidth + i];
    for (const double v : x) mean += v / kWidth;
    for (const double v : x) variance += (v - mean) * (v - mean) / kWidth;
    double logits[kClasses], total = 0;
    for (int c = 0; c < kClasses; ++c) {
      logits[c] = p[4][c];
      for (int i = 0; i < kWidth; ++i) {
        const double n = p[1][i] * (x[i] - mean) / std::sqrt(variance + 1e-5) + p[2][i];
        logits[c] += p[3][c * kWidth + i] * n;
      }
      total += std::exp(logits[c]);
    }
    sum += std::log(total) - logits[static_cast<int>(b.targets[row])];
    count += 1;
  }
  return sum / count;
}

Parameters gradient(const Parameters& p, const Batch& b) {
  return numeric_gradient(p, [&](const Parameters& at) { return mean_loss(at, b); });
}

double norm(const Parameters& g) {
  double squares = 0;
  for (const Numbers& numbers : g) {
    for (const double x : numbers) squares += x * x;
  }
  return std::sqrt(squares);
}

// The optimizers as their papers have them.
class Papers {
 public:
  Papers(Parameters start, const StepOptions& options) : p(std::move(start)), options_(options) {
    for (const Numbers& numbers : p) {
      m_.emplace_back(numbers.size(), 0.0);
      v_.emplace_back(numbers.size(), 0.0);
    }
  }

  Parameters p;
  double last_norm = 0;

  void step(const Batch& b, double rate) {
    Parameters g = gradient(p, b);
    last_norm = norm(g);
    const bool too_long = options_.clip > 0 && last_norm > options_.clip;
    const double shorten = too_long ? options_.clip / last_norm : 1;
    ++t_;
    for (size_t k = 0; k < p.size(); ++k) {
      const double decay = kDecays[k] ? options_.weight_decay : 0;
      for (size_t i = 0; i < p[k].size(); ++i) {
        p[k][i] = moved(p[k][i], shorten * g[k][i], m_[k][i], v_[k][i], rate, decay);
      }
    }
  }

 private:
  double moved(double x, double g, double& m, double& v, double rate, double decay) const {
    if (options_.optimizer == "sgd") return x - rate * (g + decay * x);
    if (options_.optimizer == "momentum") {
      m = options_.momentum * m + g + decay * x;
      return x - rate * m;
    }
    m = options_.beta1 * m + (1 - options_.beta1) * g;
    v = options_.beta2 * v + (1 - options_.beta2) * g * g;
    const double first = m / (1 - std::pow(options_.beta1, t_));
    const double second = v / (1 - std::pow(options_.beta2, t_));
    return x - rate * (first / (std::sqrt(second) + options_.eps) + decay * x);
  }

  StepOptions options_;
  Parameters m_, v_;
  int t_ = 0;
};

// So little work is slower on several threads, much slower where others want them too.
struct OneThread {
  OneThread() { set_num_threads(1); }
  ~OneThread() { set_num_threads(before); }
  int before = num_threads();
};

// The step under test, with parameters that both begin from.
class Stepper {
 public:
  explicit Stepper(const StepOptions& options, const std::string& text = kModel)
      : step(training_step(parse_scheme(text), options)),
        run(step, make_plan(step, {.threads = num_threads()}), {.poison = true}) {
    std::mt19937 random(21);
    std::normal_distribution<float> normal(0, 0.7f);
    initialize(run, 0);  // zeros for the optimizer's state
    for (const std::string& path : kParameters) {
      Numbers x(step[at(path)].type.num_elements());
      for (double& value : x) value = static_cast<double>(normal(random)) + 0.3;
      run.set_values(at(path), x);
    }
  }

  Value at(const std::string& path, const std::string& facet = "") const {
    return step.find({path, facet}).value();
  }
  Parameters parameters() const {
    Parameters p;
    for (const std::string& path : kParameters) p.push_back(run.values(at(path)));
    return p;
  }
  void take(const Batch& b, double rate) {
    run.set_values(at("ids"), b.ids);
    run.set_values(at("targets"), b.targets);
    run.set_number(at("rate"), rate);
    run.step();
  }
  double output(int i) const { return run.number(step.outputs[i]); }
  // Parameters, moments, the count of steps and the controls, to the bit.
  std::vector<std::byte> state() const {
    return {run.arena(), run.arena() + run.plan().state_end.count};
  }

  OneThread one_thread;
  Scheme step;
  Run run;
};

void compare_steps(const StepOptions& options) {
  SCOPED_TRACE(options.optimizer + " clip=" + std::to_string(options.clip) +
               " decay=" + std::to_string(options.weight_decay));
  Stepper ours(options);
  Papers papers(ours.parameters(), options);
  for (int step = 0; step < 5; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const Batch b = batch(step);
    const double rate = 0.05 / (1 + step);  // another one each time
    const double loss = mean_loss(papers.p, b);
    ours.take(b, rate);
    papers.step(b, rate);
    EXPECT_NEAR(ours.output(0), loss, 1e-5);
    EXPECT_EQ(ours.output(1), kBatch - 1);
    EXPECT_NEAR(ours.output(2), papers.last_norm, 1e-5);
    const Parameters got = ours.parameters();
    for (size_t k = 0; k < got.size(); ++k) {
      for (size_t i = 0; i < got[k].size(); ++i) {
        EXPECT_NEAR(got[k][i], papers.p[k][i], 1e-5) << kParameters[k] << "[" << i << "]";
      }
    }
  }
}

TEST(Optimizer, FollowsThePapersForFiveSteps) {
  for (const char* optimizer : {"sgd", "momentum", "adamw"}) {
    for (const double clip : {0.0, 0.05, 1000.0}) {
      for (const double decay : {0.0, 0.4}) {
        compare_steps({.optimizer = optimizer, .weight_decay = decay, .clip = clip});
      }
    }
  }
}

// Each parameter trained in its own way: what the flat notation says of it, the optimizer does.
TEST(Optimizer, AParameterIsTrainedAsIsSaidOfIt) {
  std::string text(kModel);
  const auto say = [&](const std::string& parameter, const std::string& words) {
    const size_t end = text.find('\n', text.find(" " + parameter + ": "));
    text.insert(end, " " + words);
  };
  say("table", "rate=0.5 decay=0.25");
  say("norm.gain", "decay=0.75");
  say("out.weight", "rate=2 optimizer=sgd clipped=out");
  say("out.bias", "optimizer=momentum clipped=out");
  StepOptions options{.weight_decay = 0.4, .clip = 0.05};
  Stepper ours(options, text);
  Parameters p = ours.parameters();
  std::vector<Numbers> m, v;
  for (const Numbers& numbers : p) m.emplace_back(numbers.size()), v.emplace_back(numbers.size());
  for (int t = 1; t <= 3; ++t) {
    const Batch b = batch(t);
    const Parameters g = gradient(p, b);
    const double rate = 0.05, rest = norm({g[0], g[1], g[2]}), out = norm({g[3], g[4]});
    EXPECT_GT(rest, options.clip);
    EXPECT_GT(out, options.clip) << "both groups are clipped";
    ours.take(b, rate);
    EXPECT_NEAR(ours.output(2), norm(g), 1e-5) << "the norm that is told is that of all";
    const std::vector<double> rates = {0.5, 1, 1, 2, 1}, decays = {0.25, 0.75, 0, 0.4, 0};
    for (size_t k = 0; k < p.size(); ++k) {
      for (size_t i = 0; i < p[k].size(); ++i) {
        const double own = g[k][i] * options.clip / (k < 3 ? rest : out), x = p[k][i];
        double direction = own + decays[k] * x;  // of sgd
        if (k == 4) direction = m[k][i] = options.momentum * m[k][i] + direction;
        if (k < 3) {
          m[k][i] = options.beta1 * m[k][i] + (1 - options.beta1) * own;
          v[k][i] = options.beta2 * v[k][i] + (1 - options.beta2) * own * own;
          direction = m[k][i] / (1 - std::pow(options.beta1, t)) /
                          (std::sqrt(v[k][i] / (1 - std::pow(options.beta2, t))) + options.eps) +
                      decays[k] * x;
        }
        p[k][i] = x - rates[k] * rate * direction;
      }
    }
    const Parameters got = ours.parameters();
    for (size_t k = 0; k < got.size(); ++k) {
      for (size_t i = 0; i < got[k].size(); ++i) {
        EXPECT_NEAR(got[k][i], p[k][i], 1e-5) << kParameters[k] << "[" << i << "] step " << t;
      }
    }
  }
  // No state but what each optimizer wants, and each counts its own steps.
  EXPECT_FALSE(ours.step.find({"out.weight", "adamw.m"}));
  EXPECT_FALSE(ours.step.find({"out.weight", "sgd.v"}));
  EXPECT_TRUE(ours.step.find({"out.bias", "momentum.v"}));
  EXPECT_TRUE(ours.step.find({"optimizer", "adamw.steps"}));
  EXPECT_EQ(error_text([&] { training_step(parse_scheme(text), {.clip = 0}); }),
            "'out.weight' is clipped as out, and this run does not clip: its clip is 0");
}

// What is not finite in one group stops all of them: a step is taken as a whole or not at all.
TEST(Optimizer, GroupsDecideTogether) {
  std::string text(kModel);
  text.insert(text.find('\n', text.find(" out.weight: ")), " clipped=out");
  Stepper ours({.optimizer = "sgd"}, text);
  Parameters before = ours.parameters();
  before[3][0] = std::numeric_limits<double>::infinity();
  ours.run.set_values(ours.at("out.weight"), before[3]);
  ours.take(batch(0), 0.1);
  const Parameters after = ours.parameters();
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(after[k], before[k]) << kParameters[k];
}

TEST(Optimizer, OtherConstantsAreItsOwn) {
  compare_steps({.optimizer = "adamw", .beta1 = 0.5, .beta2 = 0.7, .eps = 0.1, .clip = 0});
  compare_steps({.optimizer = "momentum", .momentum = 0.3, .clip = 0});
}

// Clipping must have been tested where it clips: this is what the 0.05 above is for.
TEST(Optimizer, ClipsByTheNormOfAllGradientsTogether) {
  Stepper ours({.optimizer = "sgd", .weight_decay = 0, .clip = 0.05});
  const Parameters before = ours.parameters();
  ours.take(batch(0), 1);
  Parameters moved = ours.parameters();
  for (size_t k = 0; k < moved.size(); ++k) {
    for (size_t i = 0; i < moved[k].size(); ++i) moved[k][i] -= before[k][i];
  }
  EXPECT_GT(ours.output(2), 0.05) << "the gradient is longer than allowed";
  EXPECT_NEAR(norm(moved), 0.05, 1e-6) << "and the step is as long as allowed";
}

// Decay at work alone: no gradient reaches the table's last row.
TEST(Optimizer, DecaysMatricesAndTablesOnly) {
  Stepper ours({.optimizer = "adamw", .weight_decay = 0.5, .clip = 0});
  const Parameters before = ours.parameters();
  ours.take(batch(0), 0.1);
  const Parameters after = ours.parameters();
  for (int i = 0; i < kWidth; ++i) {
    const size_t at = (kRows - 1) * kWidth + i;
    EXPECT_NEAR(after[0][at], before[0][at] * (1 - 0.1 * 0.5), 1e-6);
  }
  for (const Morphism& m : ours.step.morphisms) {
    if (m.op != "adamw") continue;
    const bool decays = m.source.path == "table" || m.source.path == "out.weight";
    EXPECT_EQ(std::get<double>(m.attrs.at("decay")), decays ? 0.5 : 0.0) << m.source.path;
  }
}

TEST(Optimizer, NothingCountedLeavesEverythingToTheBit) {
  for (const char* optimizer : {"sgd", "momentum", "adamw"}) {
    for (const double clip : {0.0, 1.0}) {
      SCOPED_TRACE(std::string(optimizer) + " clip=" + std::to_string(clip));
      Stepper ours({.optimizer = optimizer, .clip = clip});
      ours.take(batch(0), 0.1);  // so that moments are not zeros
      Batch ignored = batch(1);
      ignored.targets.assign(kBatch, kIgnored);
      ours.run.set_number(ours.at("rate"), 0.25);
      const auto before = ours.state();
      ours.take(ignored, 0.25);
      EXPECT_EQ(ours.state(), before);
      EXPECT_EQ(ours.output(0), 0) << "no loss, not 0/0";
      EXPECT_EQ(ours.output(1), 0);
      if (std::string(optimizer) == "adamw") {
        EXPECT_EQ(ours.run.number(ours.at("optimizer", "adamw.steps")), 1);
      }
      ours.take(batch(1), 0.25);
      EXPECT_NE(ours.state(), before) << "and the next step goes on";
    }
  }
}

// Also from the very first step, where Adam's corrections divide by 1 - beta^0 = 0.
TEST(Optimizer, NothingCountedAtFirst) {
  Stepper ours({.optimizer = "adamw"});
  Batch ignored = batch(0);
  ignored.targets.assign(kBatch, kIgnored);
  ours.run.set_number(ours.at("rate"), 0.25);
  const auto before = ours.state();
  ours.take(ignored, 0.25);
  EXPECT_EQ(ours.state(), before);
}

TEST(Optimizer, AGradientThatIsNoNumberLeavesEverythingToTheBitWhenClipping) {
  for (const char* optimizer : {"sgd", "momentum", "adamw"}) {
    for (const double bad : {double{NAN}, double{INFINITY}}) {
      SCOPED_TRACE(std::string(optimizer) + " " + std::to_string(bad));
      Stepper ours({.optimizer = optimizer, .clip = 1});
      ours.take(batch(0), 0.1);
      Numbers bias = ours.run.values(ours.at("out.bias"));
      bias[2] = bad;
      ours.run.set_values(ours.at("out.bias"), bias);
      ours.run.set_number(ours.at("rate"), 0.25);
      const auto before = ours.state();
      ours.take(batch(1), 0.25);
      EXPECT_EQ(ours.state(), before);
      EXPECT_FALSE(std::isfinite(ours.output(2))) << "the norm tells";
    }
  }
}

// Without clipping no update waits for the others, so each looks at its own gradient only.
TEST(Optimizer, WithoutClippingABadGradientStopsItsOwnParameter) {
  for (const char* optimizer : {"sgd", "momentum", "adamw"}) {
    SCOPED_TRACE(optimizer);
    Stepper ours({.optimizer = optimizer, .clip = 0});
    ours.take(batch(0), 0.1);
    // A weight so large that the squares of the gain's gradient overflow, and a gain so small that
    // no logit does.
    const Numbers gain(kWidth, 1e-20);
    Numbers weight(kClasses * kWidth, 0);
    for (int c = 0; c < kClasses; ++c) weight[c * kWidth] = c % 2 ? 3e38 : -3e38;
    ours.run.set_values(ours.at("norm.gain"), gain);
    ours.run.set_values(ours.at("out.weight"), weight);
    const Parameters before = ours.parameters();
    ours.take(batch(1), 0.1);
    const Parameters after = ours.parameters();
    EXPECT_FALSE(std::isfinite(ours.output(2))) << "the norm tells";
    EXPECT_EQ(after[1], before[1]) << "the gain's gradient overflows";
    EXPECT_NE(after[4], before[4]) << "the bias's does not";
    for (const Numbers& numbers : after) {
      for (const double x : numbers) EXPECT_TRUE(std::isfinite(x));
    }
  }
}

// A loss scaler multiplies what gradients begin with; powers of two change no bit of the step.
TEST(Optimizer, TheScaleOfTheLossIsTakenBack) {
  for (const char* optimizer : {"sgd", "momentum", "adamw"}) {
    for (const double clip : {0.0, 0.05}) {
      SCOPED_TRACE(std::string(optimizer) + " clip=" + std::to_string(clip));
      const StepOptions options{.optimizer = optimizer, .clip = clip};
      Stepper plain(options), scaled(options);
      EXPECT_EQ(plain.run.number(plain.at("scale")), 1);
      scaled.run.set_number(scaled.at("scale"), 1024);
      for (int step = 0; step < 3; ++step) {
        plain.take(batch(step), 0.1);
        scaled.take(batch(step), 0.1);
        EXPECT_EQ(scaled.parameters(), plain.parameters());
        for (const int i : {0, 1, 2}) EXPECT_EQ(scaled.output(i), plain.output(i));
      }
    }
  }
}

// The step is the sum's gradient divided once: twice the same rows change nothing.
TEST(Optimizer, DividesOnceByTheCount) {
  const auto doubled = [](std::string text) {
    for (size_t at = text.find("b=5"); at != std::string::npos; at = text.find("b=5")) {
      text.replace(at, 3, "b=10");
    }
    return text;
  };
  const StepOptions options{.optimizer = "sgd", .clip = 0};
  Stepper once(options);
  const Scheme twice = training_step(parse_scheme(doubled(kModel)), options);
  adjoint::Run run(twice, make_plan(twice, {.threads = num_threads()}));
  for (size_t k = 0; k < kParameters.size(); ++k) {
    run.set_values(*twice.find({kParameters[k]}), once.parameters()[k]);
  }
  Batch b = batch(0);
  once.take(b, 0.5);
  for (int i = 0; i < kBatch; ++i) {
    b.ids.push_back(b.ids[i]);
    b.targets.push_back(b.targets[i]);
  }
  run.set_values(*twice.find({"ids"}), b.ids);
  run.set_values(*twice.find({"targets"}), b.targets);
  run.set_number(*twice.find({"rate"}), 0.5);
  run.step();
  for (size_t k = 0; k < kParameters.size(); ++k) {
    EXPECT_LT(relative_error(run.values(*twice.find({kParameters[k]})), once.parameters()[k]),
              1e-6);
  }
}

}  // namespace
}  // namespace adjoint
