// adjoint --version: the version, the commit, and what was built in.
#include "base/version.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/build.h"
#include "comm/mpi.h"

namespace adjoint {

namespace {

std::string onednn_version() {
  const dnnl_version_t* const v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}

std::string compiler_name() {
#ifdef __clang__
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

// "80-real 90 90a-real" as {"8.0", "9.0 and newer", "9.0a"}: without a suffix there is PTX, too.
std::vector<std::string> capabilities(std::string_view architectures) {
  std::vector<std::string> all;
  while (!architectures.empty()) {
    const size_t end = std::min(architectures.find(' '), architectures.size());
    std::string_view one = architectures.substr(0, end);
    architectures.remove_prefix(std::min(end + 1, architectures.size()));
    const bool real = one.ends_with("-real");
    if (real) one.remove_suffix(5);
    const size_t digits = std::min(one.find_first_not_of("0123456789"), one.size());
    if (digits < 2) continue;
    all.push_back(fmt::format("{}.{}{}{}", one.substr(0, digits - 1), one[digits - 1],
                              one.substr(digits), real ? "" : " and newer"));
  }
  return all;
}

}  // namespace

std::string version_text() {
  const Build& b = build();
  std::string text = fmt::format("adjoint {}\n", kVersion);
  const auto line = [&](std::string_view what, const std::string& is) {
    text += fmt::format("{:<9} {}\n", what, is);
  };
  line("commit", b.commit.empty() ? "unknown: built from files without a git repository"
                                  : fmt::format("{} of {}{}", b.commit, b.date,
                                                b.changed ? ", with changes" : ""));
  line("compiler",
       fmt::format("{}, {}{}", compiler_name(), b.type,
                   b.sanitizers.empty() ? "" : fmt::format(", sanitizers {}", b.sanitizers)));
  line("CPU", fmt::format("oneDNN {}, {}", onednn_version(),
                          b.xbyak.empty() ? "no Xbyak: bodies are interpreted"
                                          : fmt::format("machine code by Xbyak {}", b.xbyak)));
  line("CUDA", b.cuda.empty()
                   ? "none"
                   : fmt::format("{} for compute capability {}; cuDNN {}", b.cuda,
                                 join(capabilities(b.cuda_architectures), ", "), b.cudnn));
  const std::vector<std::string> found = found_mpi_libraries();
  line("MPI",
       !found.empty() ? join(found, ", ")
       : b.mpi.empty()
           ? "none: ranks are threads of one process"
           : fmt::format(
                 "built for {}, and its library is not installed: ranks are threads of one process",
                 b.mpi));
  return text;
}

std::string version_json() {
  const Build& b = build();
  const auto or_null = [](std::string_view text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
  };
  nlohmann::json out = {{"command", "version"},
                        {"version", kVersion},
                        {"commit", or_null(b.commit)},
                        {"commit_date", b.commit.empty() ? nlohmann::json() : or_null(b.date)},
                        {"changed", b.changed},
                        {"compiler", compiler_name()},
                        {"build_type", b.type},
                        {"sanitizers", or_null(b.sanitizers)},
                        {"onednn", onednn_version()},
                        {"xbyak", or_null(b.xbyak)},
                        {"cuda", or_null(b.cuda)},
                        {"cudnn", or_null(b.cudnn)},
                        {"mpi", found_mpi_libraries()}};
  out["compute_capabilities"] = capabilities(b.cuda_architectures);
  return out.dump(2) + "\n";
}

}  // namespace adjoint
