#include "studio/api.h"

#include <charconv>
#include <limits>

#include "base/json.h"
#include "studio/api_error.h"
#include "studio/runs.h"

namespace adjoint {

using nlohmann::json;

namespace {

HttpAnswer json_text(std::string text, int status = 200) {
  return {.status = status,
          .type = "application/json",
          .body = std::move(text),
          .headers = {{"Cache-Control", "no-store"}}};
}

HttpAnswer as_json(const json& value, int status = 200) {
  return json_text(value.dump(-1, ' ', false, json::error_handler_t::replace), status);
}

HttpAnswer event_stream(std::function<void(HttpStream&)> stream) {
  return {.type = "text/event-stream",
          .headers = {{"Cache-Control", "no-store"}},
          .stream = std::move(stream)};
}

json body_of(const HttpRequest& request) {
  json body;
  try {
    body = parse_json(request.body);
  } catch (const Error& error) {
    refuse(400, "the body is no JSON that is taken here: ", error.what());
  }
  if (!body.is_object()) refuse(400, "wanted a JSON object, found ", body.type_name());
  return body;
}

std::string text_in(const json& body, const char* name) {
  const auto found = body.find(name);
  if (found == body.end() || !found->is_string()) refuse(400, "\"", name, "\": wanted a text");
  return found->get<std::string>();
}

const std::string& asked_for(const HttpRequest& request, const char* name) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) refuse(400, "wanted ?", name, "=...");
  return found->second;
}

int64_t number_in(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    refuse(400, "wanted a number from 0 on, found '", text.substr(0, 20), "'");
  }
  return number;
}

// "?wait=0"
bool flag_of(const HttpRequest& request, const char* name, bool otherwise) {
  const auto said = request.query.find(name);
  return said == request.query.end() ? otherwise : number_in(said->second) != 0;
}

int64_t from_of(const HttpRequest& request) {
  const auto said = request.query.find("from");
  int64_t from = said == request.query.end() ? 0 : number_in(said->second);
  // A browser that connects anew says what it had.
  const std::string* last = request.header("last-event-id");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (last && !last->empty()) from = std::max(from, std::min(number_in(*last), kMost - 1) + 1);
  return from;
}

json files_json(const Folder& folder) {
  json files = json::array();
  for (const ListedFile& file : folder.list()) {
    files.push_back({{"path", file.path},
                     {"kind", file.kind},
                     {"folder", file.folder},
                     {"bytes", file.bytes},
                     {"modified", static_cast<double>(file.modified) * 1e-9}});
  }
  return {{"files", files}};
}

HttpAnswer put_file(Folder& folder, const HttpRequest& request) {
  const json body = body_of(request);
  const auto etag = body.find("etag");
  if (etag == body.end() || (!etag->is_string() && !etag->is_null())) {
    refuse(400, "\"etag\": wanted that of the text that was read, or null for a new file");
  }
  const std::string known = etag->is_string() ? etag->get<std::string>() : "";
  return as_json({{"etag", folder.write(text_in(body, "path"), text_in(body, "text"),
                                        etag->is_string() ? &known : nullptr)}});
}

HttpAnswer answer_job(const Jobs& jobs, std::string what, const HttpRequest& request) {
  const size_t slash = what.find('/');
  const std::string action = slash == what.npos ? "" : what.substr(slash + 1);
  const std::shared_ptr<Job> job = jobs.find(what.substr(0, slash));
  const bool posts = request.method == "POST";
  if (action == "stop" && posts) {
    job->stop();
    return as_json(job->describe());
  }
  if (action.empty() && !posts) return as_json(job->describe_with_result());
  if (action != "events" || posts) return {.status = 404};
  const int64_t from = from_of(request);
  // With this status a browser does not come again for more.
  if (!job->running() && from >= job->describe()["events"].get<int64_t>()) return {.status = 204};
  const bool waits = flag_of(request, "wait", true);
  return event_stream([job, from, waits](HttpStream& to) { job->stream(to, from, waits); });
}

HttpAnswer answer_get(const Api& api, const std::string& what, const HttpRequest& request) {
  if (what == "hello") return as_json(api.hello);
  if (what == "files") return as_json(files_json(api.folder));
  if (what == "file") {
    const std::string& path = asked_for(request, "path");
    const SavedText saved = api.folder.read(path);
    return as_json({{"path", path}, {"text", saved.text}, {"etag", saved.etag}});
  }
  if (what == "runs") return as_json(list_runs(api.folder));
  if (what == "runs/metrics") {
    return as_json(metrics_of_run(api.folder, asked_for(request, "path"), from_of(request)));
  }
  if (what == "jobs") return as_json({{"jobs", api.jobs.list()}});
  if (what == "events") {
    const bool with_jobs = flag_of(request, "jobs", false);
    return event_stream(
        [&events = api.events, with_jobs](HttpStream& to) { events.stream(to, with_jobs); });
  }
  if (what.starts_with("jobs/")) return answer_job(api.jobs, what.substr(5), request);
  return {.status = 404};
}

HttpAnswer answer_post(const Api& api, const std::string& what, const HttpRequest& request) {
  if (what == "ask") return json_text(api.asks.ask(body_of(request), request.gone));
  if (what == "jobs") return as_json({{"id", api.jobs.start(body_of(request))}});
  if (what == "rename") {
    const json body = body_of(request);
    api.folder.rename(text_in(body, "from"), text_in(body, "to"));
    return as_json(json::object());
  }
  if (what == "delete") {
    const json body = body_of(request);
    api.folder.remove(text_in(body, "path"), text_in(body, "etag"));
    return as_json(json::object());
  }
  if (what.starts_with("jobs/")) return answer_job(api.jobs, what.substr(5), request);
  return {.status = 404};
}

}  // namespace

HttpAnswer Api::answer(const std::string& what, const HttpRequest& request) const {
  const auto sentence = [](const std::string& message, int status) {
    return as_json({{"error", {{"message", message}}}}, status);
  };
  try {
    if (request.method == "PUT") {
      return what == "file" ? put_file(folder, request) : HttpAnswer{.status = 404};
    }
    return request.method == "POST" ? answer_post(*this, what, request)
                                    : answer_get(*this, what, request);
  } catch (const ApiError& error) {
    return sentence(error.what(), error.status);
  } catch (const Error& error) {
    return sentence(error.what(), 400);
  } catch (const std::exception& error) {
    return sentence(error.what(), 500);
  }
}

}  // namespace adjoint
