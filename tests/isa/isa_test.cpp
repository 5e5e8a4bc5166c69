// Which instructions oneDNN may use is read once per process, from ONEDNN_MAX_CPU_ISA: so ctest
// runs this program once for each, and it says which ones really ran. What this program does not
// know it cannot judge, and says so.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "kernels/cpu/onednn_engine.h"

namespace adjoint {
namespace {

struct Isa {
  dnnl::cpu_isa isa;
  const char* name;  // as oneDNN's variable spells it
  bool offered;      // by this machine, under this system
};

#ifdef __x86_64__
bool has_avx2_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

// The widest last: each includes those before it but for AVX2_VNNI, which no Xeon has alone.
std::vector<Isa> all() {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  const bool bf16 = vnni && __builtin_cpu_supports("avx512bf16");
  return {{dnnl::cpu_isa::sse41, "SSE41", __builtin_cpu_supports("sse4.1") != 0},
          {dnnl::cpu_isa::avx, "AVX", __builtin_cpu_supports("avx") != 0},
          {dnnl::cpu_isa::avx2, "AVX2", __builtin_cpu_supports("avx2") != 0},
          {dnnl::cpu_isa::avx2_vnni, "AVX2_VNNI", has_avx2_vnni()},
          {dnnl::cpu_isa::avx512_core, "AVX512_CORE", avx512},
          {dnnl::cpu_isa::avx512_core_vnni, "AVX512_CORE_VNNI", vnni},
          {dnnl::cpu_isa::avx512_core_bf16, "AVX512_CORE_BF16", bf16},
          {dnnl::cpu_isa::avx512_core_amx, "AVX512_CORE_AMX", bf16 && amx_runs_here()}};
}
#else
std::vector<Isa> all() { return {}; }
#endif

int rank_of(const std::string& name) {
  const std::vector<Isa> known = all();
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::string effective() {
  onednn_engine();
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  for (const Isa& known : all()) {
    if (known.isa == isa) return known.name;
  }
  return "isa " + std::to_string(static_cast<int>(isa));
}

std::string best_offered() {
  std::string best;
  for (const Isa& isa : all()) {
    if (isa.offered) best = isa.name;
  }
  return best;
}

// The second variable is the first one's old name.
std::string said_limit() {
  for (const char* variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* value = std::getenv(variable);
    if (value && *value) return value;
  }
  return "";
}

TEST(Isa, ProductsUseWhatTheyMay) {
#ifndef __x86_64__
  GTEST_SKIP() << "these are the instructions of x86 processors";
#endif
  const std::string asked = said_limit(), used = effective();
  const bool limited = !asked.empty() && asked != "DEFAULT" && asked != "ALL";
  std::printf("oneDNN %d.%d.%d may use %s, and uses %s\n", dnnl_version()->major,
              dnnl_version()->minor, dnnl_version()->patch, limited ? asked.c_str() : "everything",
              used.c_str());
  ASSERT_GE(rank_of(used), 0) << "oneDNN uses '" << used
                              << "', which this test does not know: give it a line in all()";
  if (limited) {
    ASSERT_GE(rank_of(asked), 0) << "the limit is said to be '" << asked
                                 << "', which names no instructions that this test knows";
    EXPECT_LE(rank_of(used), rank_of(asked));
  } else {
    EXPECT_EQ(used, best_offered())
        << "nothing limits oneDNN, and the machine offers something else";
  }
}

}  // namespace
}  // namespace adjoint
