// AMX multiplies bf16 in registers of its own, which a process must request from the kernel and
// whose sizes the processor reports. Some virtual machines offer AMX without reporting the sizes;
// oneDNN 2 uses AMX there, and the first bf16 product is an illegal instruction. On such machines
// AMX is disabled, and bf16 uses AVX-512.
#include "kernels/cpu/onednn_engine.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace adjoint {

namespace {

#if defined(__linux__) && defined(__x86_64__)
bool amx_is_offered() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1);
}
// oneDNN 3 makes this request itself; a second one does no harm.
bool amx_is_usable() {
  constexpr unsigned kTileLeaf = 0x1d;
  unsigned palettes = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(kTileLeaf, 0, &palettes, &b, &c, &d) || palettes == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl: asm/prctl.h
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool amx_is_offered() { return false; }
bool amx_is_usable() { return false; }
#endif

// oneDNN's words for what it may use but for DEFAULT and ALL, of versions 2 and 3.
constexpr std::string_view kWords[] = {"sse41",
                                       "avx",
                                       "avx2",
                                       "avx2_vnni",
                                       "avx2_vnni_2",
                                       "avx512_mic",
                                       "avx512_mic_4ops",
                                       "avx512_core",
                                       "avx512_core_vnni",
                                       "avx512_core_bf16",
                                       "avx512_core_fp16",
                                       "avx512_core_amx",
                                       "avx10_1_512",
                                       "avx512_core_amx_fp16",
                                       "avx10_1_512_amx",
                                       "avx10_1_512_amx_fp16"};

// A user's own choice of instructions is respected. oneDNN ignores an empty variable and unknown
// words, so neither counts as a choice.
bool is_said() {
  for (const char* variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* value = std::getenv(variable);
    if (!value || !*value) continue;
    std::string word = value;
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
  }
  return false;
}

}  // namespace

bool amx_runs_here() { return amx_is_offered() && amx_is_usable(); }

const dnnl::engine& onednn_engine() {
  static const dnnl::engine cpu = [] {
    if (amx_is_offered() && !amx_is_usable() && !is_said()) {
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    }
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

}  // namespace adjoint
