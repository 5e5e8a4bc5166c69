#include "studio/jobs.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "studio/api_error.h"
#include "studio/commands.h"

namespace adjoint {

using nlohmann::json;

namespace {
constexpr size_t kMostRunning = 16, kMostKept = 100;
constexpr size_t kMostBytes = size_t{256} << 20;  // of what all that are remembered said
constexpr std::chrono::seconds kToSave{10};
}  // namespace

Jobs::~Jobs() { stop_all(); }

std::string Jobs::start(const json& request) {
  const std::vector<std::string> arguments = checked_arguments(request, Asked::kJob);
  if (const auto drafts = request.find("drafts"); drafts != request.end() && !drafts->is_null()) {
    refuse(400, "\"drafts\": a job reads files as they are saved; save the text first");
  }
  const bool trains = arguments[0] == "train";
  const auto out = option_of(arguments, "--out");
  if (trains && !out) refuse(400, "train: say --out, the folder of the run");
  std::filesystem::path metrics;
  // Where it is absolute, the command itself refuses what is outside.
  if (trains && !std::filesystem::path(*out).is_absolute()) {
    folder_.resolve(*out);  // what is refused is the folder, as it was said
    metrics = folder_.resolve(*out + "/metrics.jsonl");
  }
  // Before the command begins: what the file holds by now is another run's.
  MetricsTail tail(std::move(metrics));
  const std::scoped_lock lock(mutex_);
  const auto is_running = [](const auto& each) { return each.second->running(); };
  const auto running = std::count_if(jobs_.begin(), jobs_.end(), is_running);
  if (stopped_) refuse(503, "the studio is ending");
  if (running >= static_cast<int64_t>(kMostRunning)) {
    refuse(429, kMostRunning, " jobs are running: wait for one to end, or stop one");
  }
  forget_old();
  const int64_t number = next_++;
  const std::string id = std::to_string(number);
  auto job = std::make_shared<Job>(
      Job::About{.id = id, .arguments = arguments, .folder = out.value_or("")}, std::move(tail),
      children_.start(arguments, Children::May::kWrite, /*reads=*/false),
      Job::Ears{.ended =
                    [this](const Job& ended) {
                      events_.publish({{"kind", "job"}, {"job", ended.describe()}});
                    },
                .said =
                    [this, id](const json& event) {
                      events_.publish({{"kind", "said"}, {"id", id}, {"event", event}}, true);
                    }});
  jobs_[number] = job;
  events_.publish({{"kind", "job"}, {"job", job->describe()}});
  return id;
}

void Jobs::forget_old() {
  size_t bytes = 0;
  for (const auto& [number, job] : jobs_) bytes += job->kept_bytes();
  const auto too_much = [&] { return jobs_.size() >= kMostKept || bytes > kMostBytes; };
  for (auto each = jobs_.begin(); each != jobs_.end() && too_much();) {
    if (each->second->running()) {
      ++each;
      continue;
    }
    bytes -= each->second->kept_bytes();
    each = jobs_.erase(each);
  }
}

json Jobs::list() const {
  const std::scoped_lock lock(mutex_);
  json all = json::array();
  for (const auto& [number, job] : jobs_) all.push_back(job->describe());
  return all;
}

std::shared_ptr<Job> Jobs::find(const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& [number, job] : jobs_) {
    if (std::to_string(number) == id) return job;
  }
  refuse(404, "there is no job ", id.substr(0, 20));
}

void Jobs::stop_all() {
  std::vector<std::shared_ptr<Job>> all;
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    for (const auto& [number, job] : jobs_) all.push_back(job);
  }
  // One that was asked before is saving, and has its time too.
  for (const auto& job : all) job->ask_to_stop();
  const auto deadline = std::chrono::steady_clock::now() + kToSave;
  for (const auto& job : all) {
    while (job->running() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    job->kill();
  }
}

}  // namespace adjoint
