// The interface that the page speaks: JSON over HTTP, as docs/studio_api.md has it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "studio/asks.h"
#include "studio/events.h"
#include "studio/folder.h"
#include "studio/http_message.h"
#include "studio/jobs.h"

namespace adjoint {

struct Api {
  Folder& folder;
  Asks& asks;
  Jobs& jobs;
  Events& events;
  nlohmann::json hello;  // what GET api/hello answers

  // `what` is the path behind "api/".
  HttpAnswer answer(const std::string& what, const HttpRequest& request) const;
};

}  // namespace adjoint
