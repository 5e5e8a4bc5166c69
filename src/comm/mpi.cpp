#include "comm/mpi.h"

#include <dlfcn.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>

#include "base/text.h"
#include "comm/lifeline.h"

namespace adjoint {

namespace {

const MpiCalls* opened_calls = nullptr;

void check_mpi(const char* trouble) {
  if (trouble) throw MachineError(join_parts("MPI failed: ", trouble));
}

// Beside the binary, as it is built and as it is installed; then wherever the loader looks.
std::vector<std::string> library_paths(const std::string& file) {
  std::vector<std::string> paths;
  std::error_code missing;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", missing);
  if (!missing) {
    for (const char* folder : {"lib", "../lib", "../lib64", "."}) {
      paths.push_back((self.parent_path() / folder / file).lexically_normal().string());
    }
  }
  paths.push_back(file);
  return paths;
}

const MpiCalls& open_calls(const JobLaunch& launch) {
  std::vector<std::string> names;
  for (const std::string kind : {"openmpi", "mpich"}) {
    if (launch.library.empty() || launch.library == kind) names.push_back(kind);
  }
  names.emplace_back("mpi");  // compiled with whatever `mpicxx` was
  std::string trouble;
  for (const std::string& kind : names) {
    for (const std::string& path : library_paths("libadjoint_" + kind + ".so")) {
      const bool is_there = path.find('/') == std::string::npos || std::filesystem::exists(path);
      // Open MPI's own plugins look for its symbols among those that are visible to all.
      void* handle = is_there ? dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) : nullptr;
      if (!handle) {
        if (is_there) trouble = dlerror();
        continue;
      }
      using Table = decltype(&adjoint_mpi_calls);
      const auto table = reinterpret_cast<Table>(dlsym(handle, "adjoint_mpi_calls"));
      if (!table || table()->version != kMpiCallsVersion) {
        fail(path, " is not of this version of adjoint: build and install both together");
      }
      return *table();
    }
  }
  const std::string which = launch.library == "mpich" ? "MPICH" : "Open MPI";
  fail("a launcher started ", launch.ranks, " ranks (", launch.variable, "), and ", which,
       " cannot be opened (", trouble, "): install it (",
       launch.library == "mpich" ? "mpich, and libmpich-dev" : "openmpi-bin, and libopenmpi-dev",
       " to build libadjoint_", names[0], ".so), or say --ranks ", launch.ranks,
       " without a launcher");
}

class MpiWire : public Wire {
 public:
  MpiWire(const MpiCalls& calls, const JobLaunch& launch)
      : calls_(calls), one_machine_(launch.one_machine) {
    int largest_tag = 0;
    check_mpi(calls.start(&rank_, &ranks_, &largest_tag));
    if (ranks_ != launch.ranks) {
      fail(launch.variable, " says that there are ", launch.ranks, " ranks, and ", calls.library,
           " sees ", ranks_, ": the launcher is of another MPI");
    }
    requests_.reserve(kUsualMessages);
    parcels_.reserve(kUsualMessages);
    done_.reserve(kUsualMessages);
    tag_bits_ = std::bit_width(static_cast<uint32_t>(largest_tag)) - 1;
    if (tag_bits_ < kChannelBits + kFewestSequenceBits) {
      fail(calls.library, " has tags up to ", largest_tag, ", and groups of ranks need ",
           1 << (kChannelBits + kFewestSequenceBits));
    }
  }

  ~MpiWire() override {
    // A job that ended is not finalized: that would wait for the ranks that are gone. The process
    // exits, and the launcher ends the others.
    if (!aborted()) calls_.end();
    lifeline_.reset();
  }

  // Of all ranks, with the help of the communicator above.
  void hold(const Communicator& world, const WatchLimits& limits) {
    lifeline_ = std::make_unique<Lifeline>(
        LifelineOptions{.rank = rank_,
                        .ranks = ranks_,
                        .limits = limits,
                        .one_machine = one_machine_,
                        .ended = [this](auto& why, bool refused) { stop(why, refused); }});
    // Whoever started the launcher may listen itself, and outlives all ranks.
    if (const char* address = std::getenv(kLifelineVariable); address && *address) {
      lifeline_->join(address, Lifeline::kOutside);
      return;
    }
    std::array<char, 4096> address = {};
    if (rank_ == 0) {
      const std::string text = lifeline_->listen();
      std::copy_n(text.begin(), std::min(text.size(), address.size() - 1), address.begin());
    }
    world.broadcast(0, std::as_writable_bytes(std::span(address))).wait();
    lifeline_->join(address.data());
  }

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }
  // Near what `adjoint bench comm` fitted to two ranks of Open MPI on two cores with other users:
  // 34 us and 1.6 GB/s.
  Fabric fabric() const override {
    return {.latency = 35e-6, .seconds_per_byte = 6e-10, .seconds_per_term = 1e-10};
  }

  void post(Parcel& parcel) override {
    throw_if_aborted();
    const int sequence_bits = tag_bits_ - kChannelBits;
    CHECK(parcel.channel < (1u << kChannelBits), "no more groups than channels");
    const int tag = static_cast<int>(parcel.channel << sequence_bits |
                                     (parcel.sequence & ((1u << sequence_bits) - 1)));
    parcel.handle = 0;
    int64_t begin = 0;
    do {  // a message without bytes is one, too
      const bool first = begin == 0 && parcel.size > 2 * kFirstPiece;
      const int64_t size = first ? kFirstPiece : std::min(parcel.size - begin, kMostBytes);
      ++parcel.handle;
      int64_t request = 0;
      check_mpi(parcel.sends
                    ? calls_.send(parcel.data + begin, size, parcel.peer, tag, &request)
                    : calls_.receive(parcel.data + begin, size, parcel.peer, tag, &request));
      requests_.push_back(request);
      parcels_.push_back(&parcel);
      begin += size;
    } while (begin < parcel.size);
    last_answer_ = Clock::now();
  }

  void poll() override {
    throw_if_aborted();
    if (requests_.empty()) return;
    done_.assign(requests_.size(), 0);
    check_mpi(calls_.test(static_cast<int>(requests_.size()), requests_.data(), done_.data()));
    size_t kept = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (done_[i]) {
        last_answer_ = Clock::now();
        if (--parcels_[i]->handle == 0) {
          parcels_[i]->done = true;
          begun_.erase(parcels_[i]);
        } else {
          begun_.insert(parcels_[i]);
        }
        continue;
      }
      requests_[kept] = requests_[i];
      parcels_[kept++] = parcels_[i];
    }
    requests_.resize(kept);
    parcels_.resize(kept);
  }

  void wait(bool idle) override {
    // The kernel would add 50 us to every sleep of this thread.
    static thread_local const int sharp = prctl(PR_SET_TIMERSLACK, 1000);
    (void)sharp;
    std::unique_lock lock(mutex_);
    if (idle) {
      changed_.wait(lock, [&] { return woken_; });
    } else if (const auto quiet = Clock::now() - last_answer_; quiet > kEager) {
      const Clock::duration longest = begun_.empty() ? kLongestPause : kFirstPause;
      const auto pause = std::clamp<Clock::duration>(quiet / 8, kFirstPause, longest);
      changed_.wait_for(lock, pause, [&] { return woken_; });
    }
    woken_ = false;
  }

  void wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }

  // MPI may still write what was posted; nobody takes it up, because the process ends.
  void withdraw(Parcel&) override {}

  bool abort(const std::string& reason, bool refused) override {
    if (lifeline_) lifeline_->end(reason, refused);
    stop(reason, refused);
    return lifeline_ != nullptr;
  }

  void progress(int64_t step, std::string_view object) override {
    if (lifeline_) lifeline_->progress(step, object);
  }
  void alive() override {
    if (lifeline_) lifeline_->alive();
  }
  void waits(bool waits) override {
    if (lifeline_) lifeline_->waits(waits);
  }
  std::string place() override { return lifeline_ ? lifeline_->place() : "at its start"; }

 private:
  static constexpr int kChannelBits = 10, kFewestSequenceBits = 10;
  // More than what a library sends before the other rank has asked for it.
  static constexpr int64_t kFirstPiece = int64_t{128} << 10;
  static constexpr size_t kUsualMessages = 1024;  // under way; more take memory
  // An answer often comes at once. To yield instead of asking again would give the core away for
  // whole slices of others' time. Then pauses grow with the time since the last answer, so that one
  // is noticed an eighth later than it could be; a rank that waits for another's work asks a
  // thousand times a second, which is a percent or two of a core. A large message moves by pieces
  // that the library hands over whenever it is asked, a few at a time and in turns with the other
  // rank; asked a thousand times a second it moves 80 MB of them. So the first piece is a message
  // of its own, which is there when both ranks are, and from then on nobody pauses for long.
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kEager{20}, kFirstPause{5}, kLongestPause{1000};

  bool aborted() {
    const std::lock_guard lock(mutex_);
    return reason_.has_value();
  }
  void throw_if_aborted() {
    const std::lock_guard lock(mutex_);
    if (reason_) throw Aborted(*reason_, lifeline_ != nullptr, refused_);
  }
  void stop(const std::string& reason, bool refused) {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_) reason_ = reason, refused_ = refused;
    }
    wake();
  }

  const MpiCalls& calls_;
  const bool one_machine_;
  int rank_ = 0, ranks_ = 1, tag_bits_ = 0;
  std::vector<int64_t> requests_;  // side by side with
  std::vector<Parcel*> parcels_;   // whose parts they are
  std::vector<unsigned char> done_;
  std::set<const Parcel*> begun_;                 // whose first piece is there
  Clock::time_point last_answer_ = Clock::now();  // or question

  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  std::optional<std::string> reason_;
  bool refused_ = false;
  std::unique_ptr<Lifeline> lifeline_;
};

}  // namespace

std::optional<JobLaunch> find_launch() {
  const auto number = [](const char* variable) {
    const char* text = std::getenv(variable);
    int found = 0;
    if (text) std::from_chars(text, text + std::strlen(text), found);
    return found;
  };
  const char* const lifeline = std::getenv(kLifelineVariable);
  const bool launched_here = lifeline && *lifeline;
  struct Launcher {
    const char *ranks, *rank, *here, *library;
  };
  for (const Launcher& launcher : {Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                            "OMPI_COMM_WORLD_LOCAL_SIZE", "openmpi"},
                                   Launcher{"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "mpich"},
                                   Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "", ""}}) {
    const int ranks = number(launcher.ranks);
    // One rank is no job: a shell that Slurm gave out says so to all that is started in it. Open
    // MPI's variables are those of its own processes, and `adjoint launch` waits for its rank.
    const bool own = launcher.library == std::string_view("openmpi") || launched_here;
    if (ranks < (own ? 1 : 2)) continue;
    return JobLaunch{.ranks = ranks,
                     .rank = number(launcher.rank),
                     .one_machine = number(launcher.here) == ranks,
                     .variable = launcher.ranks,
                     .library = launcher.library};
  }
  return std::nullopt;
}

void run_launched(const JobLaunch& launch, const std::function<void(Communicator)>& work,
                  const WatchLimits& limits) {
  std::optional<Communicator> opened;
  try {
    opened = mpi_world(launch, limits);
  } catch (const Error& error) {
    // There is nobody to tell it for all yet, and every rank has found it.
    if (launch.rank == 0) throw;
    throw Aborted(error.what(), /*was_told=*/true, /*was_refused=*/true);
  }
  const Communicator world = *std::move(opened);
  try {
    return work(world);
  } catch (const Aborted&) {
    throw;
  } catch (const Error& error) {
    world.refuse(error.what());
  } catch (const std::exception& error) {
    world.abort(error.what());
  }
}

Communicator mpi_world(const JobLaunch& launch, const WatchLimits& limits) {
  CHECK(!opened_calls, "MPI is started once per process");
  opened_calls = &open_calls(launch);
  auto wire = std::make_unique<MpiWire>(*opened_calls, launch);
  MpiWire& engine = *wire;
  Communicator world(std::move(wire));
  engine.hold(world, limits);
  return world;
}

std::vector<std::string> found_mpi_libraries() {
  std::vector<std::string> found;
  for (const std::string kind : {"openmpi", "mpich", "mpi"}) {
    for (const std::string& path : library_paths("libadjoint_" + kind + ".so")) {
      if (path.find('/') == std::string::npos || !std::filesystem::exists(path)) continue;
      found.push_back(path);
      break;
    }
  }
  return found;
}

const MpiCalls& mpi_calls() {
  CHECK(opened_calls, "mpi_world opens MPI");
  return *opened_calls;
}

}  // namespace adjoint
