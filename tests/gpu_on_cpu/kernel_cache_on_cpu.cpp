// Another src/ops/kernel_cache_*.cpp, in whose place it is linked: kernels are compiled for this
// machine by the compiler that compiled the tests, and run here. Everything before that, from a
// call to its grids and arguments, is what runs on a GPU.
#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/temp_folder.h"
#include "gpu_on_cpu/block.h"
#include "gpu_on_cpu/compiler.h"
#include "kernels/backend.h"
#include "kernels/cuda/codegen/body_prelude.h"
#include "kernels/cuda/codegen/kernel_cache.h"
#include "ops/op_def.h"

namespace adjoint {

class CompiledKernels {
 public:
  explicit CompiledKernels(std::string text) : text_(std::move(text)) {
    const size_t instructions = text_.find(cuda_instructions());
    const size_t prelude = instructions + cuda_instructions().size();
    CHECK(instructions != std::string::npos && text_.find(cuda_prelude(), prelude) == prelude,
          "a source begins with the prelude");
    real = text_.substr(0, instructions);
    text_.erase(0, prelude + cuda_prelude().size());
    // A copy for every thread, as it is on a GPU, would take longer than the kernel does.
    constexpr std::string_view parameter = "const __grid_constant__ Args a";
    for (size_t at = 0; (at = text_.find(parameter)) != std::string::npos;) {
      text_.replace(at, parameter.size(), "const Args& a");
    }
  }

  std::string real;  // the source's first line, which says what is computed in
  void* library = nullptr;

  // Beside others in one file: in a namespace of its own, which keeps all apart but the kernels
  // themselves, for their names are C's.
  std::string source(const std::string& space) {
    space_ = space;
    std::string before, after;
    for (const std::string& name : names()) {
      const std::string own = space + "_" + name;
      before += "#define " + name + " " + own + "\n";
      after += "#undef " + name + "\nextern \"C\" void run_" + own + "(const void* a) { " + space +
               "::" + own + "(*(const " + space + "::Args*)a); }\n";
    }
    return before + "namespace " + space + " {\n" + text_ + "}\n" + after;
  }

  KernelFunction find(const std::string& name) const {
    CHECK(library, "kernels are compiled before they are launched");
    void* found = dlsym(library, ("run_" + space_ + "_" + name).c_str());
    CHECK(found, "a source has the kernel " + name);
    return reinterpret_cast<KernelFunction>(found);
  }

 private:
  std::vector<std::string> names() const {
    constexpr std::string_view bounds = "__launch_bounds__(";
    std::vector<std::string> all;
    for (size_t at = text_.find(bounds); at != std::string::npos; at = text_.find(bounds, at)) {
      at = text_.find(") ", at) + 2;
      all.push_back(text_.substr(at, text_.find('(', at) - at));
    }
    return all;
  }

  std::string text_, space_;
};

namespace {

using Kernels = std::vector<std::shared_ptr<CompiledKernels>>;

std::map<std::string, std::shared_ptr<CompiledKernels>> by_text;
Kernels unfinished;

// Quick to compile before quick to run; one rounding per operation, as on a GPU; and whoever moves
// a whole chunk from where it is not aligned is stopped, as there.
constexpr const char* kOptions =
    " -std=c++20 -O0 -w -Wfatal-errors -fPIC -shared -ffp-contract=off -fno-strict-aliasing"
    " -fsanitize=alignment -fsanitize-undefined-trap-on-error"
    " -I" SOURCE_DIR "/tests -I" SOURCE_DIR "/src ";

int run_compiler(const std::string& arguments) {
  return std::system(("\"" HOST_COMPILER "\" " + arguments).c_str());
}

// One file of kernels that are computed in one type.
void* compile(const TempFolder& folder, const std::string& name, const std::string& source) {
  const std::string path = folder / name;
  std::ofstream(path + ".cpp") << source;
  if (run_compiler(kOptions + path + ".cpp -o " + path + ".so 2> " + path + ".log") != 0) {
    std::ostringstream log;
    log << std::ifstream(path + ".log").rdbuf();
    throw MachineError("a generated kernel does not compile: " + log.str());
  }
  void* library = dlopen((path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw MachineError(dlerror());
  *static_cast<KernelMachine**>(dlsym(library, "machine")) = &kernel_machine();
  return library;
}

}  // namespace

bool has_compiler() { return run_compiler("--version > /dev/null 2>&1") == 0; }

std::shared_ptr<CompiledKernels> compile_kernels(std::string text) {
  std::shared_ptr<CompiledKernels>& known = by_text[text];
  if (known) return known;
  known = std::make_shared<CompiledKernels>(std::move(text));
  unfinished.push_back(known);
  return known;
}

// A few files with many kernels each: the prelude is read once in each of them.
void finish_kernels() {
  const TempFolder folder;
  std::map<std::string, Kernels> by_real;
  for (auto& kernels : std::exchange(unfinished, {})) by_real[kernels->real].push_back(kernels);
  std::vector<std::pair<Kernels, std::future<void*>>> files;
  for (const auto& [real, all] : by_real) {
    constexpr size_t kOfAFile = 32;  // at least, where there are so many
    const size_t parts = std::clamp<size_t>(all.size() / kOfAFile, 1,
                                            std::max(1u, std::thread::hardware_concurrency()));
    for (size_t part = 0; part < parts; ++part) {
      Kernels mine;
      std::string source = "#include \"gpu_on_cpu/cuda_words.h\"\n" + real;
      source += "adjoint::KernelMachine* machine;\n";
      source += cuda_prelude();
      for (size_t i = part; i < all.size(); i += parts) {
        source += all[i]->source("k" + std::to_string(i));
        mine.push_back(all[i]);
      }
      const std::string name = "kernels" + std::to_string(files.size());
      files.emplace_back(std::move(mine), std::async(std::launch::async, [&folder, name, source] {
                           return compile(folder, name, source);
                         }));
    }
  }
  for (auto& [kernels, library] : files) {
    void* loaded = library.get();
    for (const auto& k : kernels) k->library = loaded;
  }
}

void LaunchedKernel::operator()(const void* parameter, void*) const {
  run_grid(kernels_->find(name_), parameter, {grid_.x, grid_.y}, grid_.threads);
}

std::string compile_text(const std::string&, const std::string&) {
  throw MachineError("kernels run here, and nothing is compiled for a GPU");
}

}  // namespace adjoint
