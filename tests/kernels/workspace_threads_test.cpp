// A plan's workspaces are for the number of threads that the plan is for, whoever makes it: not for
// the number that OpenMP happens to have on the thread that plans.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "kernels/harness.h"

namespace adjoint {
namespace {

Type of(std::vector<int64_t> sizes) {
  Type type{Dtype::kF32, {}};
  for (const int64_t size : sizes) type.axes.push_back({"n", size});
  return type;
}

std::vector<Scheme> products() {
  const auto contract = [](std::vector<Type> inputs, const char* map) {
    return sample_scheme("contract",
                         {.inputs = std::move(inputs), .attrs = {{"map", std::string(map)}}},
                         Dtype::kF32);
  };
  return {sample_scheme("linear", {.inputs = {of({12, 64, 128}), of({512, 128}), of({512})}},
                        Dtype::kF32),
          contract({of({12, 64, 512}), of({12, 64, 128})}, "bso,bsi->oi"),
          contract({of({12, 64, 512}), of({512, 128})}, "bso,oi->bsi"),
          contract({of({2050, 64}), of({64, 96})}, "mk,kn->mn")};
}

class WorkspaceThreads : public ::testing::Test {
 protected:
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

TEST_F(WorkspaceThreads, AreThePlansOwn) {
#if ADJOINT_STD_THREADS
  GTEST_SKIP() << "built for ThreadSanitizer: oneDNN has one thread, whatever a plan says";
#endif
  std::set<int64_t> seen;
  for (const Scheme& s : products()) {
    for (const int threads : {1, 2, 3, 8, 16}) {
      const auto planned = [&] { return make_plan(s, {.threads = threads}).arena; };
      set_num_threads(threads);
      const Bytes want = planned();
      seen.insert(want.count);
      for (const int others : {1, 2, 5, 16}) {
        set_num_threads(others);
        EXPECT_EQ(planned(), want) << threads << " threads, planned where there are " << others;
      }
      Bytes elsewhere;
      std::thread([&] { elsewhere = planned(); }).join();
      EXPECT_EQ(elsewhere, want) << threads << " threads, planned on a thread of its own";
    }
  }
  if (seen.size() <= products().size() && !HasFailure()) {
    GTEST_SKIP() << "no workspace depends on threads where oneDNN has AVX2 alone";
  }
}

}  // namespace
}  // namespace adjoint
