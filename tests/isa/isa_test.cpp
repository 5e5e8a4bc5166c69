// Which instructions oneDNN may use is read once per process, from ONEDNN_MAX_CPU_ISA: so ctest
// runs this program once for each, and it says which ones really ran.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "ops/onednn_engine.h"

namespace adjoint {
namespace {

// As oneDNN's variable spells them, the widest last: each includes those before it but for
// AVX2_VNNI, which no Xeon has alone.
constexpr std::pair<dnnl::cpu_isa, const char*> kNames[] = {
    {dnnl::cpu_isa::sse41, "SSE41"},
    {dnnl::cpu_isa::avx, "AVX"},
    {dnnl::cpu_isa::avx2, "AVX2"},
    {dnnl::cpu_isa::avx2_vnni, "AVX2_VNNI"},
    {dnnl::cpu_isa::avx512_core, "AVX512_CORE"},
    {dnnl::cpu_isa::avx512_core_vnni, "AVX512_CORE_VNNI"},
    {dnnl::cpu_isa::avx512_core_bf16, "AVX512_CORE_BF16"},
    {dnnl::cpu_isa::avx512_core_amx, "AVX512_CORE_AMX"}};

int rank_of(const std::string& name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i].second == name) return static_cast<int>(i);
  }
  return -1;
}

std::string effective() {
  onednn_engine();
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  for (const auto& [known, name] : kNames) {
    if (known == isa) return name;
  }
  return "isa " + std::to_string(static_cast<int>(isa));
}

TEST(Isa, ProductsUseNoMoreThanTheyMay) {
  const char* asked = std::getenv("ONEDNN_MAX_CPU_ISA");
  const bool limited = asked && *asked && std::string(asked) != "DEFAULT";
  std::printf("oneDNN %d.%d.%d may use %s, and uses %s\n", dnnl_version()->major,
              dnnl_version()->minor, dnnl_version()->patch, limited ? asked : "everything",
              effective().c_str());
  if (limited) {
    ASSERT_GE(rank_of(asked), 0) << asked;
    EXPECT_LE(rank_of(effective()), rank_of(asked));
  }
}

}  // namespace
}  // namespace adjoint
