#include "bench/comm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "cost/collective.h"

namespace adjoint {

namespace {

constexpr std::array kTimed = {Collective::kAllReduce, Collective::kReduceScatter,
                               Collective::kAllGather, Collective::kBroadcast,
                               Collective::kAllToAll,  Collective::kBarrier};

// Buffers that are large enough for any of the calls.
struct CommMemory {
  std::vector<float> in, out;
  std::vector<std::byte> scratch;
};

class CommClock {
 public:
  CommClock(const Communicator& world, const CommBenchOptions& options)
      : world_(world), options_(options) {}

  // Seconds of one call, the median of repetitions, each of so many calls that the clock is exact.
  // Rank 0 decides for all how many, and stops when it has taken long enough: machines with other
  // users give slow turns.
  template <class Call>
  double time(const Call& call) {
    int count = 1;
    double each = repeated(call, count);  // and warms up
    while (told(each * count < options_.seconds && count < kMostCalls)) {
      count *= 2;
      each = repeated(call, count);
    }
    std::vector<double> all = {each};
    double total = each * count;
    while (told(static_cast<int>(all.size()) < options_.repetitions &&
                total < options_.repetitions * options_.seconds)) {
      all.push_back(repeated(call, count));
      total += all.back() * count;
    }
    std::sort(all.begin(), all.end());
    return told(all[all.size() / 2]);
  }

 private:
  static constexpr int kMostCalls = 10000;

  // What rank 0 says.
  template <class T>
  T told(T value) {
    world_.broadcast(0, std::as_writable_bytes(std::span(&value, 1))).wait();
    return value;
  }

  template <class Call>
  double repeated(const Call& call, int count) {
    world_.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) call();
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(end - begin).count() / count;
  }

  const Communicator& world_;
  const CommBenchOptions& options_;
};

void call_ours(const Communicator& world, Collective collective, int64_t whole,
               CommMemory& memory) {
  const size_t segment = static_cast<size_t>(whole / world.size());
  const ReadBytes in = std::as_bytes(std::span(memory.in));
  const WriteBytes out = std::as_writable_bytes(std::span(memory.out));
  switch (collective) {
    case Collective::kAllReduce:
      return world
          .all_reduce(Dtype::kF32, in.first(whole), out.first(whole), Reduction::kSum,
                      memory.scratch)
          .wait();
    case Collective::kReduceScatter:
      return world
          .reduce_scatter(Dtype::kF32, in.first(whole), out.first(segment), Reduction::kSum,
                          memory.scratch)
          .wait();
    case Collective::kAllGather:
      return world.all_gather(in.first(segment), out.first(whole)).wait();
    case Collective::kBroadcast:
      return world.broadcast(0, out.first(whole)).wait();
    case Collective::kAllToAll:
      return world.all_to_all(in.first(whole), out.first(whole)).wait();
    case Collective::kBarrier:
      return world.barrier().wait();
    default:
      CHECK(false, "a collective that is timed");
  }
}

void call_library(const MpiCalls& library, int ranks, Collective collective, int64_t whole,
                  CommMemory& memory) {
  const int64_t segment = whole / ranks, floats = whole / static_cast<int64_t>(sizeof(float));
  const char* trouble = nullptr;
  switch (collective) {
    case Collective::kAllReduce:
      trouble = library.all_reduce(memory.in.data(), memory.out.data(), floats);
      break;
    case Collective::kReduceScatter:
      trouble = library.reduce_scatter(memory.in.data(), memory.out.data(), floats / ranks);
      break;
    case Collective::kAllGather:
      trouble = library.all_gather(memory.in.data(), memory.out.data(), segment);
      break;
    case Collective::kBroadcast:
      trouble = library.broadcast(memory.out.data(), whole, 0);
      break;
    case Collective::kAllToAll:
      trouble = library.all_to_all(memory.in.data(), memory.out.data(), segment);
      break;
    case Collective::kBarrier:
      trouble = library.barrier();
      break;
    default:
      CHECK(false, "a collective that is timed");
  }
  if (trouble) throw MachineError(join_parts("MPI failed: ", trouble));
}

CommTiming timed_collective(Communicator& world, const CommBenchOptions& options,
                            Collective collective, Bytes whole, CommMemory& memory) {
  CommTiming row{.collective = collective, .whole = whole};
  row.chosen = world.choice(collective, whole.count);
  CommClock clock(world, options);
  for (const Algorithm algorithm : algorithms_of(collective)) {
    world.use(algorithm);
    const Bytes wanted = world.scratch(collective, Dtype::kF32, whole.count);
    memory.scratch.resize(std::max<size_t>(memory.scratch.size(), wanted.count));
    row.seconds.emplace_back(
        algorithm, clock.time([&] { call_ours(world, collective, whole.count, memory); }));
  }
  world.use(std::nullopt);
  if (options.library) {
    row.library = clock.time(
        [&] { call_library(*options.library, world.size(), collective, whole.count, memory); });
  }
  return row;
}

std::string microseconds(double seconds) { return fmt::format("{:.1f}", seconds * 1e6); }

}  // namespace

double CommTiming::chosen_seconds() const {
  const auto found =
      std::ranges::find(seconds, chosen, [](const auto& each) { return each.first; });
  CHECK(found != seconds.end(), "the chosen algorithm was timed");
  return found->second;
}

CommBench bench_comm(Communicator world, const std::string& engine,
                     const CommBenchOptions& options) {
  CommBench bench{.engine = engine, .ranks = world.size()};
  // Whole floats for every rank.
  const int64_t unit = static_cast<int64_t>(sizeof(float)) * world.size();
  std::vector<Bytes> sizes;
  for (const Bytes size : options.sizes) sizes.push_back(round_up(size, {unit}));
  CommMemory memory;
  memory.in.resize(std::ranges::max(sizes).count / sizeof(float), 1.0f);
  memory.out.resize(memory.in.size());
  for (const Collective collective : kTimed) {
    if (collective == Collective::kBarrier) {
      bench.rows.push_back(timed_collective(world, options, collective, {0}, memory));
      continue;
    }
    for (const Bytes size : sizes) {
      bench.rows.push_back(timed_collective(world, options, collective, size, memory));
    }
  }
  std::vector<MeasuredCollective> measured;
  for (const CommTiming& row : bench.rows) {
    for (const auto& [algorithm, taken] : row.seconds) {
      measured.push_back({row.collective, algorithm, bench.ranks, row.whole, taken});
    }
  }
  bench.fabric = fitted_fabric(measured);
  for (CommTiming& row : bench.rows) {
    row.predicted =
        seconds(price_of(row.collective, row.chosen, bench.ranks), bench.fabric, row.whole.count);
  }
  return bench;
}

nlohmann::json comm_bench_json(const CommBench& bench) {
  nlohmann::json rows = nlohmann::json::array();
  for (const CommTiming& row : bench.rows) {
    nlohmann::json algorithms = nlohmann::json::object();
    for (const auto& [algorithm, taken] : row.seconds)
      algorithms[std::string(name(algorithm))] = taken;
    rows.push_back({{"collective", name(row.collective)},
                    {"bytes", row.whole.count},
                    {"chosen", name(row.chosen)},
                    {"measured_s", row.chosen_seconds()},
                    {"predicted_s", row.predicted},
                    {"algorithms", algorithms}});
    if (row.library) rows.back()["library_s"] = *row.library;
  }
  return {{"engine", bench.engine},
          {"ranks", bench.ranks},
          {"latency_s", bench.fabric.latency},
          {"byte_s", bench.fabric.seconds_per_byte},
          {"term_s", bench.fabric.seconds_per_term},
          {"rows", rows}};
}

std::string comm_bench_table(const CommBench& bench) {
  const bool library = bench.rows[0].library.has_value();
  std::string table = fmt::format("{:<15} {:>10} {:<9} {:>10} {:>10}", "collective", "bytes", "by",
                                  "us", "predicted");
  for (int i = 0; i < kNumAlgorithms; ++i) {
    table += fmt::format(" {:>9}", name(static_cast<Algorithm>(i)));
  }
  table += library ? fmt::format(" {:>10} {:>8}\n", "library us", "of it") : "\n";
  for (const CommTiming& row : bench.rows) {
    const double taken = row.chosen_seconds();
    table +=
        fmt::format("{:<15} {:>10} {:<9} {:>10} {:>10}", name(row.collective), human(row.whole),
                    name(row.chosen), microseconds(taken), microseconds(row.predicted));
    for (int i = 0; i < kNumAlgorithms; ++i) {
      const auto found = std::ranges::find(row.seconds, static_cast<Algorithm>(i),
                                           [](const auto& each) { return each.first; });
      table += found == row.seconds.end() ? fmt::format(" {:>9}", "")
                                          : fmt::format(" {:>8.2f}x", found->second / taken);
    }
    table += row.library ? fmt::format(" {:>10} {:>7.2f}x\n", microseconds(*row.library),
                                       taken / *row.library)
                         : "\n";
  }
  return table + fmt::format("\nfitted: {}\n", print(bench.fabric));
}

}  // namespace adjoint
