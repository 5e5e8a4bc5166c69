// A parser that takes any bytes: FUZZ_TARGET(name) { ... } in name_fuzz.cpp reads `input`. Whatever
// is wrong with it is an Error, which the target may let go; anything else is a finding.
//
// Under `make fuzz` a target is a program of libFuzzer's. In fuzz_test, which any compiler builds,
// all targets are in a list, and every seed, among them those of past findings, is given to its
// own.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"

namespace adjoint {

using FuzzTarget = void (*)(std::string_view input);
// By name; what comes with each target registers itself.
inline std::map<std::string, FuzzTarget>& fuzz_targets() {
  static std::map<std::string, FuzzTarget> targets;
  return targets;
}
struct FuzzRegistration {
  FuzzRegistration(const char* name, FuzzTarget target) { fuzz_targets()[name] = target; }
};

// An empty folder in memory, where there is one, for a parser that reads files.
std::filesystem::path fuzz_folder();
void put_file(const std::filesystem::path& path, std::string_view bytes);

// The parts of an input, which a line of --- divides; those that are not there are empty.
std::string_view part_of(std::string_view input, size_t index);

// Runs it; an Error, the user's mistake, is what a bad input shall give.
template <class Act>
void refuse_or(const Act& act) {
  try {
    act();
  } catch (const Error&) {
  }
}

}  // namespace adjoint

// Inside namespace adjoint.
#if ADJOINT_LIBFUZZER
#define FUZZ_ENTRY(name)                                                          \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {       \
    refuse_or([&] { fuzz_##name({reinterpret_cast<const char*>(data), size}); }); \
    return 0;                                                                     \
  }
#else
#define FUZZ_ENTRY(name) static const FuzzRegistration registered_##name(#name, fuzz_##name);
#endif
#define FUZZ_TARGET(name)                          \
  static void fuzz_##name(std::string_view input); \
  FUZZ_ENTRY(name)                                 \
  static void fuzz_##name(std::string_view input)
