// What verify_plan sees: plans that were right are broken by hand, one way each, with storages and
// tenants that agree with the mistake; and at random, where a judge that follows every byte says
// which of them still are plans.
#include <gtest/gtest.h>

#include <random>

#include "plan/byte_oracle.h"
#include "plan/owners.h"
#include "plan/random_scheme.h"
#include "plan/region.h"

namespace adjoint {
namespace {

Scheme parsed(const char* text) {
  Scheme s = parse_scheme(text);
  verify(s);
  return s;
}
int storage_of(const Plan& plan, Value v) { return plan.places[v].storage; }
int place_of(const Plan& plan, int morphism) {
  for (size_t at = 0; at < plan.calls.size(); ++at) {
    if (plan.calls[at].morphism == morphism) return static_cast<int>(at);
  }
  return -1;
}

TEST(VerifyPlan, SeesOverlapAndWhatIsOutside) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=400]
  %1 a: f32[n=400] = gelu(%0) @a
  %2 b: f32[n=400] = add(%1, %0) @b
  return %2, %1
)");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Plan good = make_plan(s, {});
  verify_plan(s, good);
  Plan overlapping = good;
  overlapping.storages[storage_of(good, 1)].offset = good.storages[storage_of(good, 2)].offset;
  EXPECT_DEATH(verify_plan(s, overlapping), "overlap");
  Plan outside = good;
  outside.arena = {64};
  EXPECT_DEATH(verify_plan(s, outside), "in the arena");
  Plan small = good;
  small.storages[storage_of(good, 1)].size = {64};
  EXPECT_DEATH(verify_plan(s, small), "inside its storage");
}

TEST(VerifyPlan, SeesWhatTheNextIterationWouldMiss) {
  const Scheme s = parsed(R"(scheme parts=3:
  input %0 x: f32[n=400]
  %1 begin: f32[n=400] = fill() {shape=[400], value=0.0} @begin prologue
  %2 a: f32[n=400] = gelu(%0) @a
  %3 sum: f32[n=400] = add(%1, %2) @sum
  loop %1 -> %3
  return %3
)");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Plan good = make_plan(s, {});
  Plan early = good;
  early.storages[storage_of(good, 0)].last = 1;
  EXPECT_DEATH(verify_plan(s, early), "lives to its end");
  Plan apart = good;
  apart.storages.push_back(good.storages[storage_of(good, 3)]);
  apart.storages.back().offset = good.arena;
  apart.arena += {1600};
  apart.places[3].storage = static_cast<int>(apart.storages.size()) - 1;
  EXPECT_DEATH(verify_plan(s, apart), "grows in its place");
  Plan sections = good;
  sections.body_begin = 0;
  EXPECT_DEATH(verify_plan(s, sections), "in its section");
  Plan tier = good;
  tier.storages[storage_of(good, 2)].tier = Tier::kHost;
  tier.host.size = good.arena;
  EXPECT_DEATH(verify_plan(s, tier), "in its tier");
}

// One storage for each object, its views aside, for the whole step: nothing is shared.
Plan lavish_plan(const Scheme& s, const Plan& like) {
  Plan plan = like;
  plan.storages.clear();
  plan.landings.clear();
  const int end = static_cast<int>(plan.calls.size());
  const auto new_storage = [&](Bytes size, Value v) {
    plan.storages.push_back({.size = size, .offset = plan.arena, .first = 0, .last = end});
    plan.storages.back().tenants = {{.object = v, .from = 0, .to = end, .size = size}};
    plan.arena += round_up(size, {64});
    return static_cast<int>(plan.storages.size()) - 1;
  };
  plan.arena = {0};
  for (const bool state : {true, false}) {
    for (size_t v = 0; v < s.objects.size(); ++v) {
      if (is_state(s.objects[v].role) != state) continue;
      plan.places[v] = {.storage = new_storage(s.objects[v].type.bytes(), static_cast<Value>(v)),
                        .strides = dense_strides(s.objects[v].type)};
    }
    if (state) plan.state_end = plan.arena;
  }
  for (PlannedCall& call : plan.calls) {
    call.is_view = false;
    call.workspace = -1;
  }
  return plan;
}

// `out` in the place of `in`, from the call at `at` on, and every storage says so.
void take_place(Plan& plan, Value in, Value out, int at) {
  const int storage = storage_of(plan, in), left = storage_of(plan, out);
  plan.places[out] = plan.places[in];
  Storage& s = plan.storages[storage];
  s.tenants.back().to = at - 1;
  s.tenants.push_back({.object = out, .from = at, .to = s.last, .size = s.size});
  plan.storages[left].size = {0};
  plan.storages[left].tenants[0].size = {0};
}

constexpr const char* kChain = R"(scheme:
  input %0 x: f32[n=400]
  %1 a: f32[n=400] = gelu(%0) @a
  %2 b: f32[n=400] = gelu(%1) @b
  %3 c: f32[n=400] = add(%1, %2) @c
  return %3
)";

TEST(VerifyPlan, SeesAReadAfterItWasWrittenOver) {
  const Scheme s = parsed(kChain);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Plan good = lavish_plan(s, make_plan(s, {}));
  verify_plan(s, good);
  Plan early = good;
  take_place(early, 1, 2, place_of(good, 1));
  EXPECT_DEATH(verify_plan(s, early),
               "b is written over a at b .call 1., though that is wanted at c");
  Plan late = good;
  take_place(late, 2, 3, place_of(good, 2));
  verify_plan(s, late);  // its last reader may write over it
}

TEST(VerifyPlan, SeesWhoMayNotWriteOverItsOperand) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[m=8, n=8]
  input %1 w: f32[o=8, n=8]
  %2 a: f32[m=8, n=8] = gelu(%0) @a
  %3 b: f32[m=8, o=8] = linear(%2, %1) @b
  return %3
)");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Plan plan = lavish_plan(s, make_plan(s, {}));
  verify_plan(s, plan);
  take_place(plan, 2, 3, place_of(plan, 1));
  EXPECT_DEATH(verify_plan(s, plan), "b is written over a at b");
}

TEST(VerifyPlan, SeesAViewThatOutlivesItsOwner) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[m=4, n=8]
  %1 a: f32[m=4, n=8] = gelu(%0) @a
  %2 v: f32[m=4, n=3] = slice(%1) {size=3, start=2} @v
  %3 b: f32[m=4, n=8] = gelu(%1) @b
  %4 c: f32[m=4, n=3] = gelu(%2) @c
  return %3, %4
)");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Plan plan = lavish_plan(s, make_plan(s, {}));
  const int view = place_of(plan, 1);
  plan.calls[view].is_view = true;
  plan.storages[storage_of(plan, 2)].size =
      plan.storages[storage_of(plan, 2)].tenants[0].size = {0};
  plan.places[2] = {.storage = storage_of(plan, 1), .offset = {8}, .strides = {8, 1}};
  verify_plan(s, plan);
  Plan elsewhere = plan;
  elsewhere.places[2].offset = {12};
  EXPECT_DEATH(verify_plan(s, elsewhere), "v is no view of what it is said to see");
  if (place_of(plan, 2) > place_of(plan, 3)) std::swap(plan.calls[2], plan.calls[3]);
  ASSERT_LT(place_of(plan, 2), place_of(plan, 3));
  take_place(plan, 1, 3, place_of(plan, 2));
  EXPECT_DEATH(verify_plan(s, plan),
               "b is written over v at b .call 2., though that is wanted at c");
}

// A slice that its reader wants dense is a copy, which reads its own bytes alone: a result may lie
// over another slice of the same object by then, and not over this one.
TEST(VerifyPlan, ACopiedSliceReadsNoMoreThanItself) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[m=4, n=10]
  input %1 w: f32[o=3, n=6]
  %2 a: f32[m=4, n=10] = gelu(%0) @a
  %3 r: f32[m=4, n=4] = slice(%2) {size=4, start=6} @r
  %4 t: f32[m=4, n=4] = gelu(%3) @t
  %5 u: f32[m=4, n=4] = mul(%4, %4) @u
  %6 s: f32[m=4, n=6] = slice(%2) {size=6, start=0} @s
  %7 y: f32[m=4, o=3] = linear(%6, %1) @y
  return %5, %7
)");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Plan plan = make_plan(s, {});
  ASSERT_EQ(storage_of(plan, 4), storage_of(plan, 2));
  ASSERT_NE(storage_of(plan, 6), storage_of(plan, 2));
  const int result = place_of(plan, 2), copy = place_of(plan, 4);
  if (result > copy) std::rotate(&plan.calls[copy], &plan.calls[copy] + 1, &plan.calls[result] + 1);
  ASSERT_LT(place_of(plan, 2), place_of(plan, 4));
  EXPECT_EQ(spoiled_read(s, plan), "");
  EXPECT_EQ(ByteOracle(s, plan).first_fault(), "");
  // One number further to the front, the result is written over what the copy reads.
  plan.places[3].offset -= {4};
  plan.places[4].offset -= {4};
  EXPECT_NE(ByteOracle(s, plan).first_fault(), "");
  EXPECT_NE(spoiled_read(s, plan), "");
}

TEST(VerifyPlan, SeesWhatLiesWhereDataLands) {
  const Scheme s = parsed(kChain);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Plan good = make_plan(s, {.target = Target::kCuda});
  ASSERT_EQ(good.landings.size(), 1u);
  Plan plan = good;
  const Storage landing = good.storages[good.landings.at(0)];
  // The result is placed in the landing's own storage, so that no two storages overlap.
  Storage& own = plan.storages[storage_of(good, 3)];
  EXPECT_EQ(spoiled_read(s, plan), "");
  own.offset = landing.offset;
  EXPECT_NE(spoiled_read(s, plan).find("lies where data lands"), std::string::npos);
  EXPECT_DEATH(verify_plan(s, plan), "overlap");
}

TEST(VerifyPlan, SeesAWorkspaceOverWhatIsAlive) {
  const Scheme s = parsed(kChain);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Plan good = lavish_plan(s, make_plan(s, {}));
  const auto with_workspace = [&](Value over) {
    Plan plan = good;
    plan.calls[place_of(good, 1)].workspace = storage_of(good, over);
    return plan;
  };
  for (const Value over : {1, 2}) {  // its operand, its result
    EXPECT_DEATH(verify_plan(s, with_workspace(over)), "a workspace is written over");
  }
  verify_plan(s, with_workspace(0));  // read for the last time
  verify_plan(s, with_workspace(3));  // not yet made
}

TEST(VerifyPlan, SeesStateThatIsReadAfterItsNextValue) {
  const Scheme s = parsed(R"(scheme:
  input %0 x: f32[n=40]
  input %1 m: f32[n=40] state
  %2 next: f32[n=40] state = add(%1, %0) @next
  %3 y: f32[n=40] = mul(%1, %0) @y
  carry %1 -> %2
  return %3
)");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Plan plan = make_plan(s, {});
  ASSERT_LT(place_of(plan, 1), place_of(plan, 0)) << "the plan reads the old one first";
  std::swap(plan.calls[0], plan.calls[1]);
  EXPECT_NE(spoiled_read(s, plan).find("next is written over m"), std::string::npos);
}

TEST(VerifyPlan, SeesTwoTenantsOfOneByte) {
  const Scheme s = parsed(kChain);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Plan plan = lavish_plan(s, make_plan(s, {}));
  Storage& storage = plan.storages[storage_of(plan, 1)];
  Tenant half = storage.tenants[0];
  half.size.count /= 2;
  storage.tenants = {half, half};  // the area is right
  EXPECT_DEATH(verify_plan(s, plan), "every byte has one owner");
}

// ---- regions ----

TEST(Regions, OverlapWhereTheyShareAByte) {
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  int shared = 0, apart = 0;
  for (int round = 0; round < 20000; ++round) {
    std::set<int64_t> bytes[2];
    Region regions[2];
    // Mostly of the same strides, as slices of one object are.
    Strides strides = {1 + below(40), 1 + below(9), 1};
    for (int r = 0; r < 2; ++r) {
      if (below(3) == 0) strides = {1 + below(40), 1 + below(9), 1 + below(3)};
      const Type type{Dtype::kF32, {{"a", 1 + below(4)}, {"b", 1 + below(4)}, {"c", 1 + below(5)}}};
      const int64_t begin = 4 * below(60);
      regions[r] = region_of(type, strides, Tier::kDevice, {begin});
      for (int64_t k = 0; k < type.num_elements(); ++k) {
        const int64_t c = k % type.dim(2), b = k / type.dim(2) % type.dim(1),
                      a = k / type.dim(2) / type.dim(1);
        bytes[r].insert(begin + 4 * (a * strides[0] + b * strides[1] + c * strides[2]));
      }
    }
    const bool want = std::any_of(bytes[0].begin(), bytes[0].end(),
                                  [&](int64_t byte) { return bytes[1].count(byte) > 0; });
    ++(want ? shared : apart);
    ASSERT_EQ(overlap(regions[0], regions[1]), want) << "round " << round;
    ASSERT_EQ(overlap(regions[1], regions[0]), want) << "round " << round;
  }
  EXPECT_GT(shared, 2000);
  EXPECT_GT(apart, 2000);
}

// ---- plans broken at random ----

class Breaker {
 public:
  explicit Breaker(unsigned seed) : random_(seed) {}

  Plan broken(const Scheme& s, Plan plan) {
    for (size_t k = 1 + below(2); k > 0; --k) break_once(s, plan);
    return plan;
  }

 private:
  size_t below(size_t n) { return random_() % n; }

  void break_once(const Scheme& s, Plan& plan) {
    Storage& storage = plan.storages[below(plan.storages.size())];
    const Storage& other = plan.storages[below(plan.storages.size())];
    PlannedCall& call = plan.calls[below(plan.calls.size())];
    Place& place = plan.places[below(plan.places.size())];
    switch (below(6)) {
      case 0:
        if (storage.tier == other.tier) storage.offset = other.offset;
        return;
      case 1:
        storage.offset += {4 * static_cast<int64_t>(below(20))};
        return;
      case 2: {
        const size_t at = below(plan.calls.size());
        if (at + 1 == plan.calls.size()) return;
        const auto section = [&](size_t i) { return s.morphisms[plan.calls[i].morphism].section; };
        if (section(at) == section(at + 1)) std::swap(plan.calls[at], plan.calls[at + 1]);
        return;
      }
      case 3:
        place.offset += {4};
        return;
      case 4: {
        const size_t v = &place - plan.places.data();
        place = plan.places[below(plan.places.size())];
        place.strides = dense_strides(s.objects[v].type);
        return;
      }
      default:
        if (call.workspace >= 0) call.workspace = static_cast<int>(below(plan.storages.size()));
        return;
    }
  }

  std::mt19937 random_;
};

TEST(VerifyPlan, JudgesPlansThatAreBrokenAtRandom) {
  int right = 0, wrong = 0, further = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    const Scheme s = RandomScheme(seed, seed % 2 == 1).scheme;
    const Plan good = make_plan(s, {});
    ASSERT_EQ(spoiled_read(s, good), "");
    // Padding belongs to an object, and has no elements for the judge to follow.
    const auto is_padded = [](const Object& object) {
      return object.type.num_physical() != object.type.num_elements();
    };
    if (std::any_of(s.objects.begin(), s.objects.end(), is_padded)) continue;
    Breaker breaker(seed);
    for (int round = 0; round < 8; ++round) {
      const Plan plan = breaker.broken(s, good);
      const std::string want = ByteOracle(s, plan).first_fault(), got = spoiled_read(s, plan);
      SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round) + "\n" +
                   print(s));
      if (!want.empty()) {
        ASSERT_NE(got, "") << want;
        ++wrong;
        continue;
      }
      // These say more than the bytes do: what other plans and the poison rely on.
      const bool says_more = got.find("among the state") != std::string::npos ||
                             got.find("storage is not alive") != std::string::npos ||
                             got.find("no view") != std::string::npos ||
                             got.find("did not go in") != std::string::npos;
      if (says_more) {
        ++further;
        continue;
      }
      ASSERT_EQ(got, "");
      ++right;
    }
  }
  EXPECT_GT(right, 100);
  EXPECT_GT(wrong, 300);
  EXPECT_LT(further, right);
}

}  // namespace
}  // namespace adjoint
