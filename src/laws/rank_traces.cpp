#include "laws/rank_traces.h"

#include <algorithm>

#include "base/error.h"
#include "comm/gpu_reduction.h"
#include "device/library_threads.h"
#include "device/parallel.h"
#include "functors/stage_step.h"
#include "laws/compare.h"

namespace adjoint {

namespace {

// The placement of an object that is in pieces along its first axis and along nothing else.
const Placement* cut_along_samples(const Object& object) {
  const std::vector<Placement>& all = object.attributes.placement;
  const bool one = all.size() == 1 && all[0].spread == Spread::kSharded && all[0].axis == 0 &&
                   all[0].segments.empty();
  return one ? &all[0] : nullptr;
}

int64_t elements_per_sample(const Object& object) {
  return object.type.num_elements() / object.type.dim(0);
}

}  // namespace

int64_t first_choice(const Object& object, const std::vector<MeshAxis>& mesh,
                     const Coordinates& at) {
  const Placement* cut = cut_along_samples(object);
  if (!cut) return 0;
  const int64_t samples = shard_size(cut->whole, mesh_size(mesh, cut->mesh_axis));
  return at.at(cut->mesh_axis) * samples * elements_per_sample(object);
}

Numbers assembled(const Object& object, const std::vector<MeshAxis>& mesh,
                  const std::vector<const Numbers*>& of_ranks, const std::string& what) {
  const auto ranks = static_cast<int>(of_ranks.size());
  const Placement* cut = cut_along_samples(object);
  if (cut && num_ranks(mesh) == mesh_size(mesh, cut->mesh_axis)) {
    const int64_t row = elements_per_sample(object);
    const int64_t samples = shard_size(cut->whole, ranks);
    Numbers all;
    for (const Numbers* piece : of_ranks) {
      const auto count = std::min<int64_t>(samples * row, static_cast<int64_t>(piece->size()));
      all.insert(all.end(), piece->begin(), piece->begin() + count);
    }
    all.resize(std::min<size_t>(all.size(), cut->whole * row));
    return all;
  }
  const bool sharded =
      std::any_of(object.attributes.placement.begin(), object.attributes.placement.end(),
                  [](const Placement& p) { return p.spread == Spread::kSharded; });
  const bool partial =
      std::any_of(object.attributes.placement.begin(), object.attributes.placement.end(),
                  [](const Placement& p) { return p.spread == Spread::kPartial; });
  if (partial) return *of_ranks[0];
  if (!sharded) {
    for (int rank = 1; rank < ranks && !what.empty(); ++rank) {
      if (same_bits(*of_ranks[0], *of_ranks[rank])) continue;
      fail("rank ", rank, " has another ", what,
           " than rank 0, and all ranks should have the same");
    }
    return *of_ranks[0];
  }
  // The numbers of all parts of a batch are longer than the object, which is of one part.
  Object piece = object;
  const int64_t rows = static_cast<int64_t>(of_ranks[0]->size()) / elements_per_sample(object);
  int64_t held = rows;
  for (const Placement& p : object.attributes.placement) {  // the last one cuts the others' pieces
    if (p.spread != Spread::kSharded || p.axis != 0) continue;
    held = shard_size(p.whole, p.segments, mesh_size(mesh, p.mesh_axis));
  }
  if (rows < held) return *of_ranks[0];  // some parts of several
  piece.type.axes[0].size = held;
  Numbers all(whole_type(piece).num_elements());
  for (int rank = 0; rank < ranks; ++rank) {
    for (const ShardRun& r : shard_runs(piece, mesh, coordinates_of(rank, mesh))) {
      std::copy_n(of_ranks[rank]->begin() + r.local, r.count, all.begin() + r.whole);
    }
  }
  return all;
}

Tracer::Tracer(const Scheme& step, const InputRanges& ranges, const TraceOptions& options,
               DrawnNumbers* drawn)
    : mesh_(step.mesh), ranges_(ranges) {
  const int stages = step.schedule.empty() ? 1 : mesh_size(step.mesh, kStageAxis);
  for (const MeshAxis& axis : mesh_) {
    if (stages == 1 || axis.name != kStageAxis) mesh_of_stage_.push_back(axis);
  }
  steps_ = steps_of_stages(step);
  for (const Scheme& each : steps_) {
    plans_.push_back(make_plan(each, {.threads = num_threads(),
                                      .target = options.reference ? Target::kCpu : options.target,
                                      .deterministic = true}));
  }
  if (!mesh_.empty()) return;
  alone_ = std::make_unique<RankTracer>(steps_[0], plans_[0], ranges, options, drawn, nullptr);
}

Trace Tracer::trace(const TraceOptions& options) {
  return alone_ ? alone_->trace(options) : trace_on_mesh(options);
}

Trace Tracer::trace_on_mesh(const TraceOptions& options) const {
  const int ranks = num_ranks(mesh_);
  const auto stages = steps_.size();
  std::vector<std::vector<Trace>> traces(stages);
  for (std::vector<Trace>& of_stage : traces) of_stage.resize(ranks / stages);
  std::vector<std::map<TensorKey, Value>> traced(stages);
  run_ranks(ranks,
            [&](Communicator world) {
              const LibraryThreads as_planned(num_threads());
              Seat seat(world, mesh_);
              const size_t stage = stages > 1 ? seat.coordinates().at(kStageAxis) : 0;
              int among = 0;  // those of its stage
              for (const MeshAxis& axis : mesh_of_stage_) {
                among = among * axis.size + static_cast<int>(seat.coordinates().at(axis.name));
              }
              // Numbers that are drawn are not cached: the cache belongs to one thread.
              RankTracer tracer(steps_[stage], plans_[stage], ranges_, options, nullptr, &seat);
              traces[stage][among] = tracer.trace(options);
              if (among > 0) return;
              for (const auto& [key, numbers] : traces[stage][0].tensors)
                traced[stage][key] = tracer.traced_as(key);
            },
            {.memory = memory_of(plans_[0].target)});
  Trace whole = assembled_of(0, traces[0], traced[0]);
  const auto join = [](auto& into, const auto& more, size_t stage) {
    for (const auto& [key, numbers] : more) {
      const auto [there, fresh] = into.emplace(key, numbers);
      if (fresh || same_bits(there->second, numbers)) continue;
      std::string what;
      if constexpr (std::is_same_v<std::decay_t<decltype(key)>, TensorKey>) {
        what = to_string(key);
      } else {
        what = key;
      }
      fail("stage ", stage, " has another ", what, " than an earlier one, and both should have ",
           "the same");
    }
  };
  for (size_t stage = 1; stage < stages; ++stage) {
    Trace of_stage = assembled_of(stage, traces[stage], traced[stage]);
    join(whole.tensors, of_stage.tensors, stage);
    join(whole.begin, of_stage.begin, stage);
    for (size_t step = 0; step < whole.choices.size(); ++step) {
      join(whole.choices[step], of_stage.choices[step], stage);
    }
    std::move(of_stage.nodes.begin(), of_stage.nodes.end(), std::back_inserter(whole.nodes));
  }
  return whole;
}

// What the ranks of one stage have, pieces put together.
Trace Tracer::assembled_of(size_t stage, const std::vector<Trace>& traces,
                           const std::map<TensorKey, Value>& traced) const {
  const Scheme& step = steps_[stage];
  const auto gather = [&](const Object& object, const std::string& what, const auto& numbers_of) {
    std::vector<const Numbers*> of_ranks;
    for (const Trace& t : traces) of_ranks.push_back(&numbers_of(t));
    return assembled(object, mesh_of_stage_, of_ranks, what);
  };
  const auto object_of = [&](const std::string& source) -> const Object& {
    const auto found = std::find_if(step.objects.begin(), step.objects.end(),
                                    [&](const Object& o) { return to_string(o.source) == source; });
    CHECK(found != step.objects.end(), "an object of the step: " + source);
    return *found;
  };
  Trace whole;
  for (const auto& [key, v] : traced) {
    whole.tensors[key] =
        gather(step[v], to_string(key),
               [&, &key = key](const Trace& t) -> const Numbers& { return t.tensors.at(key); });
  }
  for (const auto& [source, numbers] : traces[0].begin) {
    whole.begin[source] = gather(
        object_of(source), source,
        [&, &source = source](const Trace& t) -> const Numbers& { return t.begin.at(source); });
  }
  for (size_t step = 0; step < traces[0].choices.size(); ++step) {
    auto& choices = whole.choices.emplace_back();
    for (const auto& [source, numbers] : traces[0].choices[step]) {
      choices[source] = gather(object_of(source), source,
                               [&, &source = source](const Trace& t) -> const Numbers& {
                                 return t.choices[step].at(source);
                               });
    }
  }
  for (size_t i = 0; i < traces[0].nodes.size(); ++i) {
    // On the way ranks may differ: each has its own counter of random numbers.
    Node node = traces[0].nodes[i];
    node.numbers = gather(object_of(node.source), "",
                          [&](const Trace& t) -> const Numbers& { return t.nodes[i].numbers; });
    whole.nodes.push_back(std::move(node));
  }
  return whole;
}

}  // namespace adjoint
