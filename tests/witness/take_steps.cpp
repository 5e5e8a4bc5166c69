// Takes the steps that another program asks for, and tells what they made: the hands of the witness
// (witness.py), which judges them. It reads one case per line of JSON (a model's text, a stack, an
// optimizer, parameters and batches), trains as a run would, and writes one line of JSON for it.
#include <iostream>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>

#include "analysis/input_ranges.h"
#include "base/error.h"
#include "comm/threads.h"
#include "device/library_threads.h"
#include "device/parallel.h"
#include "functors/pipeline.h"
#include "functors/stage_step.h"
#include "run/parameters.h"
#include "run/run.h"
#include "train/bound_model.h"

namespace adjoint {
namespace {

using nlohmann::json;

StepOptions options_of(const json& asked) {
  const json& o = asked.at("options");
  StepOptions options;
  options.optimizer = o.value("optimizer", options.optimizer);
  options.beta1 = o.value("beta1", options.beta1);
  options.beta2 = o.value("beta2", options.beta2);
  options.eps = o.value("eps", options.eps);
  options.momentum = o.value("momentum", options.momentum);
  options.weight_decay = o.value("weight_decay", options.weight_decay);
  options.clip = o.value("clip", options.clip);
  options.stack = asked.at("stack");
  options.on_mesh = true;
  return options;
}

bool is_carried(const Object& object) {
  return object.role == Role::kParameter || object.role == Role::kState;
}

// What all ranks have, put together of their pieces. Two ranks that both hold an element must have
// the same bits of it.
class Wholes {
 public:
  void add(const Object& object, const std::vector<ShardRun>& runs,
           const std::vector<double>& mine) {
    const std::lock_guard lock(mutex_);
    const Type type = whole_type(object);
    const std::string source = to_string(object.source);
    json& sizes = sizes_[source] = json::array();
    for (int axis = 0; axis < type.rank(); ++axis) sizes.push_back(type.dim(axis));
    roles_[source] = name(object.role);
    frozen_[source] = object.frozen;
    std::vector<double>& all = values_[source];
    all.resize(type.num_elements(), std::numeric_limits<double>::quiet_NaN());
    for (const ShardRun& r : runs) {
      for (int64_t i = 0; i < r.count; ++i) {
        double& there = all[r.whole + i];
        const double here = mine[r.local + i];
        if (!std::isnan(there) && there != here) fail("ranks disagree about ", source);
        there = here;
      }
    }
  }
  json told() const {
    json all = json::object();
    for (const auto& [source, values] : values_) {
      all[source] = {{"role", roles_.at(source)},
                     {"frozen", frozen_.at(source)},
                     {"sizes", sizes_.at(source)},
                     {"values", values}};
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<double>> values_;
  std::map<std::string, json> sizes_;
  std::map<std::string, std::string> roles_;
  std::map<std::string, bool> frozen_;
};

// One rank, or all there is.
class Taker {
 public:
  Taker(const json& asked, const std::map<std::string, int64_t>& ignored, const Scheme& step,
        const Plan& plan, Seat* seat)
      : asked_(asked), ignored_(ignored), run_(step, plan, {.poison = true, .seat = seat}) {}

  void begin(Wholes& wholes) {
    initialize(run_, asked_.value("seed", uint64_t{1}));
    tell(wholes);
    for (const Value in : scheme().inputs) {
      if (scheme()[in].role != Role::kParameter) continue;
      const auto given = asked_.at("parameters").find(to_string(scheme()[in].source));
      if (given != asked_.at("parameters").end()) set_whole(in, *given);
    }
  }

  json step(int number) {
    for (const Value in : scheme().inputs) {
      const std::string& path = scheme()[in].source.path;
      if (scheme()[in].role == Role::kInput) {
        const auto ignored = ignored_.find(path);
        set_whole(in, asked_.at("batches").at(number).at(path),
                  ignored == ignored_.end() ? 0 : static_cast<double>(ignored->second));
      } else if (path == "rate") {
        run_.set_number(in, asked_.at("rates").at(number));
      }
    }
    run_.step();
    json metrics = json::array();
    for (const Value out : scheme().outputs) metrics.push_back(run_.values(out).at(0));
    return metrics;
  }

  void tell(Wholes& wholes) const {
    for (const Value in : scheme().inputs) {
      if (is_carried(scheme()[in])) wholes.add(scheme()[in], run_.runs_of(in), run_.values(in));
    }
  }

 private:
  const Scheme& scheme() const { return run_.scheme(); }

  // This rank's piece; what pads it is `fill`.
  void set_whole(Value v, const std::vector<double>& whole, double fill = 0) {
    const Object& object = scheme()[v];
    if (std::cmp_not_equal(whole.size(), whole_type(object).num_elements())) {
      fail(to_string(object.source), " has ", whole_type(object).num_elements(),
           " elements, and was given ", whole.size());
    }
    std::vector<double> piece(object.type.num_elements(), fill);
    for (const ShardRun& r : run_.runs_of(v)) {
      std::copy_n(whole.begin() + r.whole, r.count, piece.begin() + r.local);
    }
    run_.set_values(v, piece);
  }

  const json& asked_;
  const std::map<std::string, int64_t>& ignored_;  // by input: what a rank's missing rows hold
  Run run_;
};

json take_steps(const json& asked) {
  const BoundModel model({.file = "case.scheme", .text = asked.at("text")},
                         {.batch = asked.at("batch"), .seq = asked.value("seq", int64_t{0})});
  const Scheme forward = model.forward();
  const std::map<std::string, int64_t> ignored = ignored_values(forward);
  const Scheme step =
      build_step(forward, parse_stack(asked.at("stack").get<std::string>()), options_of(asked))
          .scheme;
  const std::vector<Scheme> stages = steps_of_stages(step);
  std::vector<Plan> plans;
  for (const Scheme& stage : stages) plans.push_back(make_plan(stage, {.threads = num_threads()}));

  Wholes before, after;
  const size_t steps = asked.at("batches").size();
  std::vector<json> metrics(steps);
  const auto work = [&](size_t stage, Seat* seat) {
    Taker taker(asked, ignored, stages[stage], plans[stage], seat);
    taker.begin(before);
    for (size_t i = 0; i < steps; ++i) {
      json mine = taker.step(static_cast<int>(i));
      if (!seat || seat->rank() == 0) metrics[i] = std::move(mine);
    }
    taker.tell(after);
  };
  if (step.mesh.empty()) {
    work(0, nullptr);
  } else {
    int ranks = 1;
    for (const MeshAxis& axis : step.mesh) ranks *= axis.size;
    run_ranks(ranks, [&](Communicator world) {
      const LibraryThreads as_planned(num_threads());
      Seat seat(world, step.mesh);
      work(stages.size() > 1 ? seat.coordinates().at(kStageAxis) : 0, &seat);
    });
  }
  return {{"initial", before.told()}, {"carried", after.told()}, {"metrics", metrics}};
}

}  // namespace
}  // namespace adjoint

int main() {
  adjoint::set_num_threads(1);
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json told;
    try {
      told = adjoint::take_steps(nlohmann::json::parse(line));
    } catch (const adjoint::Error& error) {
      told = {{"refused", error.what()}};
    }
    std::cout << told.dump() << std::endl;
  }
}
