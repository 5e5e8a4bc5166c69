// Living in the host is exact, whatever lives there: the same losses, parameters and moments, bit
// for bit.
#include "analysis/structure.h"
#include "train/same_steps.h"

namespace adjoint {
namespace {

// Sends out whatever `out` says of every object.
Scheme with_tier(Scheme step, const std::function<bool(const Object&)>& out) {
  for (Object& o : step.objects) o.attributes.tier = out(o) ? Tier::kHost : Tier::kDevice;
  Scheme result = realize_tier(step);
  verify(result);
  return result;
}

int64_t num_moves(const Scheme& scheme) {
  return std::count_if(scheme.morphisms.begin(), scheme.morphisms.end(),
                       [](const Morphism& m) { return m.op == "move"; });
}

TEST(TierLaw, ActivationsStateAndParametersAreExact) {
  for (const SmallModel& model : small_models()) {
    for (const double clip : {0.0, 1.0}) {
      const Scheme plain = bare_step(model.forward, {.clip = clip});
      for (const Role role : {Role::kActivation, Role::kState, Role::kParameter}) {
        SCOPED_TRACE(model.name + ", " + std::string(name(role)));
        const Scheme step = with_tier(plain, [&](const Object& o) { return o.role == role; });
        EXPECT_GT(num_moves(step), 0);
        expect_same_bits(plain, step, model.vocab, 2);
      }
    }
  }
}

// Whatever is recomputed or sent out, together.
TEST(TierLaw, AnySubsetIsExactBesideRecomputation) {
  const std::vector<SmallModel> models = small_models();
  for (unsigned seed = 0; seed < 12; ++seed) {
    const SmallModel& model = models[seed % models.size()];
    SCOPED_TRACE(model.name + ", seed " + std::to_string(seed));
    const Scheme plain = bare_step(model.forward, {.clip = seed % 2 ? 1.0 : 0.0});
    std::mt19937 random(seed);
    Scheme marked = plain;
    for (Object& o : marked.objects) {
      if (random() % 3 == 0) o.attributes.residence = Residence::kRecomputed;
      if (random() % 6 == 0) o.attributes.residence = Residence::kApart;
      if (random() % 2 == 0) o.attributes.tier = Tier::kHost;
    }
    const Scheme recomputed = realize_residence(marked);
    verify(recomputed);
    const Scheme step = realize_tier(recomputed);
    verify(step);
    expect_same_bits(plain, step, model.vocab, 2);
    if (testing::Test::HasFatalFailure()) return;
  }
}

int64_t device_peak(const Scheme& step) {
  const Plan plan = make_plan(step, {.threads = 2});
  std::printf("  device %.3f GiB, host %.3f GiB\n", double(plan.live_peak.count) / (1 << 30),
              double(plan.host.live_peak.count) / (1 << 30));
  return plan.live_peak.count;
}

// What is left on the device of activations is what a few blocks need.
TEST(TierLaw, ActivationsLeaveTheDevice) {
  const BoundModel model(find_model("gpt2"), {.batch = 8, .context = 256});
  const Scheme plain = bare_step(model.forward());
  const Scheme step =
      with_tier(plain, [&](const Object& o) { return o.role == Role::kActivation; });
  EXPECT_LT(device_peak(step), device_peak(plain) * 3 / 4);
}

// Where state is most of the bytes: it leaves but for what two updates need, of which one may be
// the table's; so do parameters, but for what two blocks need.
TEST(TierLaw, StateAndParametersLeaveTheDevice) {
  const BoundModel model(find_model("gpt2"), {.batch = 1, .context = 16});
  constexpr int64_t kParameters = 124'439'808 - (1024 - 16) * 768, kTable = 50257 * 768;
  for (const double clip : {0.0, 1.0}) {
    const Scheme plain = bare_step(model.forward(), {.clip = clip});
    const int64_t all = device_peak(plain);
    const auto without = [&](Role role) {
      return device_peak(with_tier(plain, [&](const Object& o) { return o.role == role; }));
    };
    constexpr int64_t kSlack = 40'000'000;  // a block's
    EXPECT_LT(without(Role::kState), all - 8 * (kParameters - kTable) + kSlack);
    EXPECT_LT(without(Role::kParameter), all - 4 * (kParameters - kTable) + kSlack);
  }
}

// Codes that live in the host's tier begin as what the unmoved codes begin as.
TEST(TierLaw, QuantizedParametersLeaveTheDevice) {
  const BoundModel model(find_model("char"),
                         {.batch = 2, .settings = {{"layers", 2}, {"hidden", 32}, {"heads", 2}}});
  const std::string stack = "lora(rank=2) | quantize(int8, group=16)";
  const Scheme plain = training_step(model.forward(), {.stack = stack});
  const Scheme moved = training_step(model.forward(), {.stack = stack + " | offload(parameters)"});
  expect_same_bits(plain, moved, 65);
}

}  // namespace
}  // namespace adjoint
