#include "edit/kept_names.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "models/call_names.h"
#include "models/elaborate.h"
#include "models/format_names.h"
#include "ops/op_def.h"

namespace adjoint {

namespace {

// A call of the text before and what it is after the edit.
struct Kept {
  CallName was, is;
  bool moved() const {
    return !is.said && (was.first != is.first || was.last != is.last || was.said);
  }
};

// The place of a byte after the changes; nothing where it was replaced.
std::optional<size_t> followed(const std::vector<Change>& changes, size_t at) {
  size_t now = at;
  for (const Change& c : changes) {
    if (c.from > at) break;
    if (at < c.to) return std::nullopt;
    now += c.text.size() - (c.to - c.from);
  }
  return now;
}

std::optional<size_t> begin_of(const WrittenText& text, const CallName& call) {
  const auto range = text.lines().range(call.call->span);
  return range ? std::optional(range->from) : std::nullopt;
}

// Calls of one box by where they begin.
using Calls = std::map<size_t, CallName>;
Calls calls_in(const WrittenText& text, const Box& box) {
  Calls all;
  for (CallName& call : call_names(text.document(), box)) {
    if (const auto at = begin_of(text, call)) all.emplace(*at, std::move(call));
  }
  return all;
}

// Paths of the parameters of the model that the text says as it stands; nothing where it says none.
std::optional<std::vector<std::string>> parameters_of(const WrittenText& text) {
  try {
    const Scheme scheme = elaborate(text.document(), text.file(), {});
    std::vector<std::string> paths;
    for (const Value v : scheme.inputs) {
      if (scheme[v].role == Role::kParameter) paths.push_back(scheme[v].source.path);
    }
    return paths;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::set<std::string>> parts_of(
    const std::optional<std::vector<std::string>>& paths) {
  if (!paths) return std::nullopt;
  std::set<std::string> parts;
  for (const std::string& path : *paths) {
    for (size_t from = 0; from <= path.size();) {
      const size_t end = std::min(path.find('.', from), path.size());
      const std::string part = path.substr(from, end - from);
      parts.insert(part.substr(0, part.find('[')));
      from = end + 1;
    }
  }
  return parts;
}

// Changes of the text before that give what changes of it and then insertions into the new text
// do.
std::vector<Change> joined(std::vector<Change> changes, const std::vector<Change>& insertions) {
  for (const Change& insertion : insertions) {
    CHECK(insertion.from == insertion.to, "names are only added");
  }
  // Later ones first, so that places before them stay.
  std::vector<Change> added;
  for (const Change& insertion : insertions) {
    size_t behind = 0;  // bytes by which the new text is ahead of the one before
    bool inside = false;
    size_t shrunk = 0;
    for (Change& c : changes) {
      const size_t begin = c.from + behind - shrunk;
      if (insertion.from < begin) break;
      if (insertion.from <= begin + c.text.size() && !c.text.empty()) {
        c.text.insert(insertion.from - begin, insertion.text);
        inside = true;
        break;
      }
      behind += c.text.size();
      shrunk += c.to - c.from;
    }
    if (!inside) {
      const size_t at = insertion.from + shrunk - behind;
      added.push_back({at, at, insertion.text});
    }
  }
  changes.insert(changes.end(), added.begin(), added.end());
  return changes;
}

class NameKeeper {
 public:
  explicit NameKeeper(const WrittenText& before, Edited edited)
      : before_(before), edited_(std::move(edited)) {}

  Edited run() {
    const WrittenText plain(edited_.text, before_.file());
    std::vector<Change> pins;
    for (const Box& box : before_.document().boxes) {
      const Box* now = plain.document().box(box.name);
      if (!now) continue;
      for (Change& pin : pins_of(plain, box, *now)) pins.push_back(std::move(pin));
    }
    if (!pins.empty()) pin(std::move(pins));
    say_breaks(WrittenText(edited_.text, before_.file()));
    return std::move(edited_);
  }

 private:
  std::vector<Kept> kept(const Calls& was, const Calls& is) const {
    std::vector<Kept> all;
    for (const auto& [at, call] : was) {
      const auto now = followed(edited_.changes, at);
      const auto found = now ? is.find(*now) : is.end();
      if (found == is.end() || found->second.kind != call.kind) continue;
      all.push_back({call, found->second});
    }
    return all;
  }

  bool has_weights(const CallName& call) {
    if (!asked_) parts_ = parts_of(parameters_of(before_));
    asked_ = true;
    const OpDef* op = call.is_box ? nullptr : find_op(call.kind);
    if (!parts_) return !op || op->surface;
    return std::any_of(parts_->begin(), parts_->end(),
                       [&](const std::string& part) { return call.may_be(part); });
  }

  // New calls say a number that is free, so that the others keep theirs; where that does not
  // suffice, those that had another number before say that.
  std::vector<Change> pins_of(const WrittenText& now, const Box& was_box, const Box& is_box) {
    const Calls was = calls_in(before_, was_box), is = calls_in(now, is_box);
    const std::set<std::string> said = numbered_names(is_box);
    std::set<std::string> moved;  // kinds
    std::set<const Term*> old;
    std::vector<Kept> all = kept(was, is);
    for (const Kept& k : all) {
      old.insert(k.is.call);
      if (k.moved() && has_weights(k.was)) moved.insert(k.was.kind);
    }
    std::vector<Change> pins;
    for (const std::string& kind : moved) {
      const auto is_kind = [&](const CallName& call) { return call.kind == kind; };
      std::vector<Change> own;
      int free = 2;  // the first number that no call of the kind had; a box has none before 2
      for (const auto& [at, call] : was) {
        if (is_kind(call)) free = std::max(free, call.last + 1);
      }
      for (const auto& [at, call] : is) {
        if (!is_kind(call) || call.said || old.count(call.call)) continue;
        while (said.count(call.numbered(free))) ++free;
        own.push_back(added_keyword(now, *call.call, "name", "\"" + call.numbered(free) + "\""));
        ++free;
      }
      if (own.empty() || !all_in_place(all, kind, own, now, is_box)) {
        own.clear();
        for (const Kept& k : all) {
          if (!is_kind(k.was) || !k.moved()) continue;
          const auto name = k.was.name();
          if (!name) {
            breaks_.push_back(join_parts("which number '", kind, "' in '", was_box.name,
                                         "' has depends on a condition, and it is another now"));
            continue;
          }
          const bool plain = k.was.is_box && *name == kind;
          own.push_back(
              added_keyword(now, *k.is.call, "name", plain ? *name : "\"" + *name + "\""));
        }
      }
      pins.insert(pins.end(), own.begin(), own.end());
    }
    return pins;
  }

  // Tells if with these names every call of the kind is called as before.
  bool all_in_place(const std::vector<Kept>& all, const std::string& kind,
                    const std::vector<Change>& own, const WrittenText& now, const Box& box) const {
    const Edited tried = changed(now.text(), own);
    const WrittenText text(tried.text, before_.file());
    const Box* there = text.document().box(box.name);
    CHECK(there, "a name that is added leaves the boxes");
    const Calls is = calls_in(text, *there);
    return std::all_of(all.begin(), all.end(), [&](const Kept& k) {
      if (k.was.kind != kind) return true;
      const auto at = followed(tried.changes, *begin_of(now, k.is));
      const auto found = at ? is.find(*at) : is.end();
      return found != is.end() && !Kept{k.was, found->second}.moved();
    });
  }

  void pin(std::vector<Change> pins) {
    std::sort(pins.begin(), pins.end(),
              [](const Change& a, const Change& b) { return a.from > b.from; });
    TextRange made = edited_.made;
    for (const Change& pin : pins) {
      if (pin.from < edited_.made.from) made.from += pin.text.size();
      if (pin.from <= edited_.made.to) made.to += pin.text.size();
    }
    edited_ = changed(before_.text(), joined(std::move(edited_.changes), pins));
    edited_.made = made;
  }

  void say_breaks(const WrittenText& after) {
    const auto &was = before_.document(), &is = after.document();
    for (size_t f = 0; f < was.formats.size() && f < is.formats.size(); ++f) {
      const Format& format = is.formats[f];
      std::set<std::string> gone;
      for (const FormatModule* m : impossible_modules(was, was.formats[f])) gone.insert(m->ours);
      for (const FormatModule* m : impossible_modules(is, format)) {
        if (!gone.insert(m->ours).second) continue;
        breaks_.push_back(
            join_parts("module \"", m->ours, "\" of format ", format.kind,
                       " names nothing any more, so convert would refuse this model"));
      }
      say_unnamed(after, was.formats[f], format);
    }
    edited_.breaks = std::move(breaks_);
  }

  // Weights that no module names, where all had one before.
  void say_unnamed(const WrittenText& after, const Format& was, const Format& is) {
    const auto unnamed = [](const WrittenText& text, const Format& format) {
      std::vector<std::string> paths;
      for (const std::string& path : parameters_of(text).value_or(std::vector<std::string>())) {
        if (!stored_parameter(format, path, 1)) paths.push_back(path);
      }
      return paths;
    };
    const std::vector<std::string> now = unnamed(after, is);
    if (now.empty() || !unnamed(before_, was).empty()) return;
    const size_t more = now.size() - 1;
    breaks_.push_back(join_parts("no module of format ", is.kind, " names '", now[0], "'",
                                 more ? join_parts(" and ", more, " more") : std::string(),
                                 ", so convert would refuse this model"));
  }

  const WrittenText& before_;
  Edited edited_;
  std::vector<std::string> breaks_;
  bool asked_ = false;
  std::optional<std::set<std::string>> parts_;  // of paths of parameters
};

}  // namespace

Edited keep_names(const WrittenText& before, Edited edited) {
  return NameKeeper(before, std::move(edited)).run();
}

}  // namespace adjoint
