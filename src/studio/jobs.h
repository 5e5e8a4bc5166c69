// The long commands that were started since the studio was.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "studio/children.h"
#include "studio/events.h"
#include "studio/folder.h"
#include "studio/job.h"

namespace adjoint {

class Jobs {
 public:
  Jobs(Children& children, const Folder& folder, Events& events)
      : children_(children), folder_(folder), events_(events) {}
  ~Jobs();

  // Starts what a request's object says; gives its id.
  std::string start(const nlohmann::json& request);
  nlohmann::json list() const;
  std::shared_ptr<Job> find(const std::string& id) const;  // an ApiError if there is none
  // Asks all to save and stop, waits for them, and then ends those that still run.
  void stop_all();

 private:
  void forget_old();
  Children& children_;
  const Folder& folder_;
  Events& events_;
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Job>> jobs_;  // by number, which is the id
  int64_t next_ = 1;
  bool stopped_ = false;
};

}  // namespace adjoint
