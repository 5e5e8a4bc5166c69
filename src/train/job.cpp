#include "train/job.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/version.h"
#include "comm/texts.h"
#include "device/limits.h"
#include "device/parallel.h"
#include "kernels/cpu/onednn_engine.h"
#include "train/provenance.h"

namespace adjoint {

namespace fs = std::filesystem;

int threads_of_ranks(const Communicator& world) {
  struct Place {
    std::array<char, 256> machine = {};
    cpu_set_t cores = {};
    int processors = 0;  // as many as a container allows
  };
  Place mine;
  ::gethostname(mine.machine.data(), mine.machine.size() - 1);
  CPU_ZERO(&mine.cores);
  ::sched_getaffinity(0, sizeof mine.cores, &mine.cores);
  mine.processors = available_processors();
  std::vector<Place> all(world.size());
  world.all_gather(std::as_bytes(std::span(&mine, 1)), bytes_of(all)).wait();
  const auto share = [&](const Place& place) {
    const auto shares = [&](const Place& other) {
      cpu_set_t both;
      CPU_AND(&both, &place.cores, &other.cores);
      return place.machine == other.machine && CPU_COUNT(&both) > 0;
    };
    // Launchers may bind ranks to cores of their own, which nobody shares.
    return place.processors / static_cast<int>(std::ranges::count_if(all, shares));
  };
  int least = share(all[0]);
  for (const Place& place : all) least = std::min(least, share(place));
  return std::max(1, least);
}

namespace {

// Which of several ways kernels take on this processor.
uint64_t hash_of_instructions() {
  onednn_engine();  // settles what oneDNN uses
  const auto effective = static_cast<int64_t>(dnnl::get_effective_cpu_isa());
  int64_t ours = 0;
#if defined(__x86_64__)
  ours =
      (__builtin_cpu_supports("avx2") ? 1 : 0) | (__builtin_cpu_supports("fma") ? 2 : 0) |
      (__builtin_cpu_supports("avx512f") ? 4 : 0) | (__builtin_cpu_supports("avx512bw") ? 8 : 0) |
      (__builtin_cpu_supports("avx512vl") ? 16 : 0) | (__builtin_cpu_supports("avx512dq") ? 32 : 0);
#endif
  const int64_t both[] = {effective, ours};
  return hash_of(both, sizeof both);
}

}  // namespace

void agree_on_program(const Communicator& world) {
  world.agree(hash_of(made_by(/*on_gpu=*/false).dump()), "version of adjoint");
  world.agree(hash_of_instructions(),
              "instructions of the processor (ONEDNN_MAX_CPU_ISA limits them)");
}

void agree_on_options(const Communicator& world, const TrainConfig& config, const ModelText& text) {
  world.agree(hash_of(config.values().dump()), "options");
  world.agree(hash_of(text.text, hash_of(text.preset)), "text of the model");
  world.agree(static_cast<uint64_t>(num_threads()), "number of threads (--threads)");
}

void check_all_see(const Communicator& world, const fs::path& folder) {
  // Where it is not there yet, the folder above it in which it will be made.
  fs::path there = fs::absolute(folder).lexically_normal();
  std::error_code ignored;
  while (!fs::is_directory(there, ignored) && there.has_relative_path())
    there = there.parent_path();
  std::unique_ptr<AtomicFile> probe;  // removed on return
  std::string name, trouble;
  const std::string sign = fmt::format("adjoint {}", ::getpid());
  if (world.rank() == 0) {
    try {
      probe = std::make_unique<AtomicFile>(there / ".probe");
      probe->write(sign);
      probe->finish();
      name = probe->temporary().filename().string();
    } catch (const Error& e) {
      trouble = e.what();
    }
  }
  trouble = broadcast_text(world, 0, trouble);
  if (!trouble.empty()) fail(trouble);
  name = broadcast_text(world, 0, name);
  const std::string wanted = broadcast_text(world, 0, sign);
  const fs::path seen = there / name;
  bool sees = false;
  try {
    sees = read_file(seen) == wanted && ::access(there.c_str(), W_OK) == 0;
  } catch (const Error&) {  // it is another folder, or none
  }
  std::vector<uint8_t> all(world.size());
  const uint8_t mine = sees ? 1 : 0;
  world.all_gather(std::as_bytes(std::span(&mine, 1)), bytes_of(all)).wait();
  std::vector<int> blind;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!all[rank]) blind.push_back(rank);
  }
  if (blind.empty()) return;
  fail(folder.string(), ": ", name_ranks(blind), blind.size() == 1 ? " does" : " do",
       " not see this folder of rank 0, or cannot write to it; say an --out on a disk that all "
       "ranks "
       "share");
}

void check_mesh(const std::vector<MeshAxis>& mesh, int ranks) {
  const int wanted = num_ranks(mesh);
  if (ranks == wanted) return;
  if (wanted == 1) {
    fail(
        "this run has ", ranks,
        " ranks, and the stack says no mesh, so every rank would do the same; add data_parallel to "
        "it");
  }
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh) axes.push_back(axis.name + "=" + std::to_string(axis.size));
  std::string instead;
  // The nearest mesh: the same but for its samples.
  const int data = mesh_size(mesh, "data"), others = wanted / data, fits = ranks / others;
  if (ranks > 1 && data > 1 && ranks % others == 0) {
    instead = join_parts(", or say data_parallel(", fits, ")");
  } else if (data > 1 && fits > 0 && fits * others > 1) {
    instead = join_parts(", or on ", fits * others, " with data_parallel(", fits, ")");
  }
  fail("the mesh of the stack (", join(axes, ", "), ") has ", wanted, " ranks, and this run has ",
       ranks, "; run it on ", wanted, " (--ranks ", wanted, ", or mpirun -n ", wanted, ")",
       instead);
}

}  // namespace adjoint
