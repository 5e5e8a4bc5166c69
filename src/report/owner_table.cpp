#include "report/owner_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "report/memory_table.h"
#include "report/timeline.h"

namespace adjoint {

constexpr std::pair<std::string_view, By> kBy[] = {
    {"category", By::kCategory}, {"block", By::kBlock}, {"tensor", By::kTensor}};

std::vector<std::string> words_of_by() {
  std::vector<std::string> words;
  for (const auto& [word, by] : kBy) words.emplace_back(word);
  return words;
}

By by_named(std::string_view name) {
  for (const auto& [word, by] : kBy) {
    if (word == name) return by;
  }
  fail("--by: wanted category, block or tensor, found '", name, "'",
       did_you_mean(name, words_of_by()));
}

namespace {

// The last call that reads the owner's storage: up to `owner.to`, or the call that overwrites the
// owner.
std::string last_reader(const Scheme& scheme, const Plan& plan, const Owner& owner) {
  const int calls = static_cast<int>(plan.calls.size());
  if (owner.to >= calls) return "after the step";
  for (int at = std::min(owner.to + 1, calls - 1); at >= owner.from; --at) {
    const Morphism& m = scheme.morphisms[plan.calls[at].morphism];
    const bool reads = std::any_of(m.inputs.begin(), m.inputs.end(), [&](Value v) {
      return plan.places[v].storage == owner.storage;
    });
    if (reads) return to_string(m.source);
  }
  return to_string(scheme.morphisms[plan.calls[owner.to].morphism].source);
}

Holding holding_of(const Scheme& scheme, const Plan& plan, const std::vector<int>& made_by,
                   const Owner& owner) {
  Holding h;
  h.category = owner.category;
  h.bytes = owner.size;
  if (owner.object < 0) {
    const Morphism& m = scheme.morphisms[plan.calls[owner.from].morphism];
    h.source = to_string(m.source) + " workspace";
    h.block = block_of(m.source);
    h.from = h.to = to_string(m.source);
    return h;
  }
  const Object& object = scheme[owner.object];
  h.source = to_string(object.source);
  const auto landing = plan.landings.find(owner.object);
  if (landing != plan.landings.end() && landing->second == owner.storage) h.source += ":next";
  h.block = block_of(object.source);
  h.dtype = name(object.type.dtype);
  h.shape = shape_string(object.type);
  const int maker = made_by[owner.object];
  h.from = maker < 0 ? "before the step" : to_string(scheme.morphisms[maker].source);
  h.to = last_reader(scheme, plan, owner);
  return h;
}

struct BlockRow {
  std::string block;
  CategoryBytes bytes = {};
};

// Sorted so that "block[10]" follows "block[9]"; what is outside of blocks comes first.
std::vector<BlockRow> block_rows(const std::vector<Holding>& held) {
  std::map<std::tuple<std::string, int64_t, std::string>, CategoryBytes> rows;
  for (const Holding& h : held) {
    const size_t open = h.block.find('[');
    const int64_t index = open == std::string::npos ? -1 : std::atoll(h.block.c_str() + open + 1);
    rows[{h.block.substr(0, open), index, h.block}][static_cast<size_t>(h.category)] +=
        h.bytes.count;
  }
  std::vector<BlockRow> found;
  for (const auto& [key, bytes] : rows) found.push_back({std::get<2>(key), bytes});
  return found;
}

std::string title_of(Tier tier) {
  return tier == Tier::kHost ? "host memory at the peak" : "memory at the peak";
}

std::string block_table(const Scheme& scheme, const Plan& plan, Tier tier) {
  const std::vector<BlockRow> rows = block_rows(holdings(scheme, plan, tier));
  CategoryBytes sums = {};
  size_t width = 18;
  for (const BlockRow& row : rows) {
    for (int c = 0; c < kNumCategories; ++c) sums[c] += row.bytes[c];
    width = std::max(width, row.block.size());
  }
  std::string out = fmt::format("{:<{}}", "block", width);
  for (const Category c : kLayers) {
    if (sums[static_cast<size_t>(c)] > 0) out += fmt::format(" {:>15}", name(c));
  }
  out += fmt::format(" {:>12} {:>20}\n", "", "bytes");
  const auto line = [&](std::string_view what, const CategoryBytes& bytes) {
    out += fmt::format("{:<{}}", what, width);
    for (const Category c : kLayers) {
      const auto k = static_cast<size_t>(c);
      if (sums[k] == 0) continue;
      out += fmt::format(" {:>15}", bytes[k] > 0 ? human({bytes[k]}) : "");
    }
    out += fmt::format(" {:>12} {:>20}\n", human({total(bytes)}), with_commas(total(bytes)));
  };
  for (const BlockRow& row : rows) line(row.block.empty() ? "outside" : row.block, row.bytes);
  line("live", sums);
  return out;
}

std::string shown_type(const Holding& h) { return h.dtype + h.shape; }

std::string tensor_table(const Scheme& scheme, const Plan& plan, Tier tier, int64_t top) {
  const std::vector<Holding> held = holdings(scheme, plan, tier);
  const size_t shown = top == 0 ? held.size() : std::min<size_t>(held.size(), top);
  size_t source = 6, type = 5, from = 4;
  for (size_t i = 0; i < shown; ++i) {
    source = std::max(source, held[i].source.size());
    type = std::max(type, shown_type(held[i]).size());
    from = std::max(from, held[i].from.size());
  }
  const auto row = [&](std::string_view bytes, std::string_view size, std::string_view category,
                       std::string_view what, std::string_view shape, std::string_view made,
                       std::string_view read) {
    std::string line = fmt::format("{:>17} {:>10}  {:<15}  {:<{}}  {:<{}}  {:<{}}  {}", bytes, size,
                                   category, what, source, shape, type, made, from, read);
    while (line.back() == ' ') line.pop_back();
    return line + "\n";
  };
  std::string out = row("bytes", "", "category", "tensor", "type", "from", "to");
  Bytes rest{0}, live{0};
  for (size_t i = 0; i < held.size(); ++i) {
    const Holding& h = held[i];
    live += h.bytes;
    if (i >= shown) {
      rest += h.bytes;
      continue;
    }
    out += row(with_commas(h.bytes.count), human(h.bytes), name(h.category), h.source,
               shown_type(h), h.from, h.to);
  }
  if (shown < held.size()) {
    out +=
        row(with_commas(rest.count), human(rest), "",
            fmt::format("{} more, each {} or less", held.size() - shown, human(held[shown].bytes)),
            "", "", "");
  }
  return out + row(with_commas(live.count), human(live), "", "live", "", "", "");
}

nlohmann::json by_json(const Scheme& scheme, const Plan& plan, Tier tier, By by, int64_t top) {
  auto rows = nlohmann::json::array();
  if (by == By::kCategory) {
    const std::vector<Bytes> bytes = plan.at_peak(tier);
    for (int c = 0; c < kNumCategories; ++c) {
      rows.push_back({{"category", key_of(static_cast<Category>(c))}, {"bytes", bytes[c].count}});
    }
    return rows;
  }
  const std::vector<Holding> held = holdings(scheme, plan, tier);
  if (by == By::kBlock) {
    for (const BlockRow& row : block_rows(held)) {
      nlohmann::json categories;
      for (int c = 0; c < kNumCategories; ++c) {
        categories[key_of(static_cast<Category>(c))] = row.bytes[c];
      }
      rows.push_back(
          {{"block", row.block}, {"bytes", total(row.bytes)}, {"categories", categories}});
    }
    return rows;
  }
  const size_t shown = top == 0 ? held.size() : std::min<size_t>(held.size(), top);
  for (size_t i = 0; i < shown; ++i) {
    const Holding& h = held[i];
    rows.push_back({{"tensor", h.source},
                    {"block", h.block},
                    {"category", key_of(h.category)},
                    {"dtype", h.dtype},
                    {"shape", h.shape},
                    {"bytes", h.bytes.count},
                    {"from", h.from},
                    {"to", h.to}});
  }
  if (shown < held.size()) {
    int64_t rest = 0;
    for (size_t i = shown; i < held.size(); ++i) rest += held[i].bytes.count;
    rows.push_back({{"more", held.size() - shown}, {"bytes", rest}});
  }
  return rows;
}

nlohmann::json moment_json(const Scheme& scheme, const Plan& plan, Tier tier) {
  const int place = plan.arena_of(tier).peak_at;
  nlohmann::json out = {{"words", moment_in_words(scheme, plan, place)},
                        {"call", place + 1},
                        {"calls", plan.calls.size()}};
  if (place < static_cast<int>(plan.calls.size())) {
    const Morphism& m = scheme.morphisms[plan.calls[place].morphism];
    out["source"] = to_string(m.source);
    out["op"] = m.op;
    out["phase"] = name(kind_of(m));
    out["block"] = block_of(m.source);
    out["epoch"] = m.epoch;
  }
  return out;
}

}  // namespace

std::vector<Holding> holdings(const Scheme& scheme, const Plan& plan, Tier tier) {
  const int when = plan.arena_of(tier).peak_at;
  const std::vector<int> made_by = producers(scheme);
  std::vector<Holding> held;
  for (const Owner& o : owners(plan, tier)) {
    if (o.from > when || o.to < when || o.size.count == 0) continue;
    held.push_back(holding_of(scheme, plan, made_by, o));
  }
  std::stable_sort(held.begin(), held.end(),
                   [](const Holding& a, const Holding& b) { return a.bytes > b.bytes; });
  return held;
}

std::string owner_table(const Scheme& scheme, const Plan& plan, By by, int64_t top) {
  std::string out;
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    const Arena arena = plan.arena_of(tier);
    if (tier == Tier::kHost && arena.size.count == 0) continue;
    if (!out.empty()) out += "\n";
    out += fmt::format("{}, {}\n", title_of(tier), moment_in_words(scheme, plan, arena.peak_at));
    out +=
        by == By::kBlock ? block_table(scheme, plan, tier) : tensor_table(scheme, plan, tier, top);
    const Bytes gaps = arena.size - arena.live_peak;
    out += fmt::format("with gaps of {} the arena is {}, {} bytes\n", human(gaps),
                       human(arena.size), with_commas(arena.size.count));
  }
  return out;
}

void add_owners(nlohmann::json& out, const Scheme& scheme, const Plan& plan, By by, int64_t top) {
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) add_owners(out, scheme, plan, tier, by, top);
}

void add_owners(nlohmann::json& out, const Scheme& scheme, const Plan& plan, Tier tier, By by,
                int64_t top) {
  if (tier == Tier::kHost && plan.host.size.count == 0) return;
  const std::string prefix = tier == Tier::kHost ? "host_" : "";
  out[prefix + "by"] = by_json(scheme, plan, tier, by, top);
  out[prefix + "peak_at"] = moment_json(scheme, plan, tier);
}

std::string comparison_table(const NamedPlan& a, const NamedPlan& b) {
  std::string out = fmt::format("A: {}\nB: {}\n", a.title, b.title);
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    const Arena left = a.plan.arena_of(tier), right = b.plan.arena_of(tier);
    if (tier == Tier::kHost && left.size.count == 0 && right.size.count == 0) continue;
    out += fmt::format("\n{:<24} {:>12} {:>12} {:>9} {:>20} {:>20}\n", title_of(tier), "A", "B",
                       "B / A", "A, bytes", "B, bytes");
    const auto line = [&](std::string_view what, Bytes x, Bytes y) {
      const std::string ratio = x.count == 0
                                    ? ""
                                    : fmt::format("{:.1f}%", 100 * static_cast<double>(y.count) /
                                                                 static_cast<double>(x.count));
      out += fmt::format("{:<24} {:>12} {:>12} {:>9} {:>20} {:>20}\n", what, human(x), human(y),
                         ratio, with_commas(x.count), with_commas(y.count));
    };
    const std::vector<Bytes> x = a.plan.at_peak(tier), y = b.plan.at_peak(tier);
    for (int c = 0; c < kNumCategories; ++c) line(name(static_cast<Category>(c)), x[c], y[c]);
    line("gaps", left.size - left.live_peak, right.size - right.live_peak);
    line("peak (predicted)", left.size, right.size);
  }
  return out;
}

}  // namespace adjoint
