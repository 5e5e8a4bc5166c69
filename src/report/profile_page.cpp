// Cards with the main numbers, then memory, the charts, and time. Bars are plain HTML in the
// palette's colours, which mean in tables what they mean in charts. Small rows are folded. On a
// narrow screen tables show their main columns only, and charts scroll inside their own box.
#include "report/profile_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "report/palette.h"
#include "report/scale.h"
#include "report/step_times.h"

namespace adjoint {

namespace {

constexpr std::string_view kStyle = R"(
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 28px 24px 64px; color: var(--ink);
  background: var(--paper);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 10px; }
.sub { color: var(--soft); margin: 0 0 20px; overflow-wrap: anywhere; } code { font-size: 13px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(205px, 1fr)); gap: 12px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 12px 14px; min-width: 0; overflow-wrap: anywhere; }
.card b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; display: block; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: 14px; table-layout: fixed; }
th, td { text-align: right; padding: 4px 8px; } td { white-space: nowrap; }
th { font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--line);
  vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; overflow-wrap: anywhere;
  white-space: normal; }
th:last-child, td:last-child { padding-right: 0; }
td.zero { color: var(--soft); opacity: 0.6; }
tr.sum td { font-weight: 600; border-bottom: none; border-top: 2px solid var(--line); }
tr.folded td { border-bottom: none; }
.bar { display: flex; height: 12px; background: var(--card); }
.bar i, .legend i { display: block; height: 100%; border: 0 solid var(--soft); }
.recomputation { background: repeating-linear-gradient(135deg, var(--backward) 0 3px,
  var(--paper) 3px 5px); }
.gaps { background: repeating-linear-gradient(135deg, var(--idle) 0 1.5px, var(--card) 1.5px 5px); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 8px; font-size: 13px;
  color: var(--soft); }
.legend span { display: flex; align-items: center; gap: 6px; }
.legend i { width: 13px; height: 13px; border-width: 1px; }
details { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; color: var(--soft); font-size: 14px; padding: 8px 0; }
details table { margin-bottom: 8px; }
figure { margin: 0 0 20px; overflow-x: auto; }
figure svg { display: block; max-width: 100%; height: auto; }
.narrow { display: none; color: var(--soft); font-size: 13px; margin: 0 0 6px; }
@media (max-width: 760px) {
  body { padding: 20px 16px 48px; } h1 { font-size: 21px; }
  .cards { grid-template-columns: 1fr 1fr; gap: 8px; } .card { padding: 10px; }
  .card b { font-size: 18px; } .more { display: none; } th, td { padding: 6px 5px; }
  figure svg { max-width: none; } .narrow { display: block; }
}
@media print { body { max-width: none; padding: 0; } h2 { break-after: avoid; } }
)";

// Rows below this share of a table are folded, together up to the second.
constexpr double kSmall = 0.01, kMostFolded = 0.1;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string card(std::string_view title, const std::string& value, const std::string& below) {
  return fmt::format("<div class=card><span>{}</span><b>{}</b><span>{}</span></div>\n", title,
                     value, below);
}

// "2.64 GFLOP", "1.20 PFLOP".
std::string human_flops(double flops) {
  const char* units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  int unit = 0;
  while (flops >= 1000 && unit < 6) flops /= 1000, ++unit;
  return fmt::format("{:.{}f} {}", flops, flops < 10 ? 2 : flops < 100 ? 1 : 0, units[unit]);
}

std::string cards(const Profile& p) {
  const Measured& m = p.measured;
  const auto beside = [](Bytes measured, Bytes predicted, std::string_view word) {
    const int64_t off = measured.count - predicted.count;
    if (off == 0) return fmt::format("{} B, exactly as {}", with_commas(measured.count), word);
    return fmt::format("{} {} B, {:+.2f}%", word, with_commas(predicted.count),
                       100.0 * static_cast<double>(off) / static_cast<double>(predicted.count));
  };
  std::string out = "<div class=cards>\n";
  out +=
      card("Peak memory, measured", human(m.touched), beside(m.touched, p.plan.arena, "planned"));
  if (p.plan.host.size.count > 0) {
    out += card("Peak of the host's tier, measured", human(m.host_touched),
                beside(m.host_touched, p.plan.host.size, "planned"));
  }
  out += card("Witness: growth of the process", human(m.witness),
              beside(m.witness, p.planned_of_process(), "planned"));
  out +=
      card("Program and libraries", human(m.library), "all resident memory that is not the arena");
  const std::string predicted =
      p.predicted_seconds > 0
          ? fmt::format("predicted {}, {:+.0f}%", human_seconds(p.predicted_seconds),
                        100 * (m.step_seconds / p.predicted_seconds - 1))
          : "";
  out += card("Step, median", human_seconds(m.step_seconds), predicted);
  out += card("Tokens per second",
              with_commas(static_cast<int64_t>(static_cast<double>(p.step.batch * p.step.context) /
                                               m.step_seconds)),
              fmt::format("{} x {} a step", p.step.batch, p.step.context));
  const TimeRow step = time_of_step(p.scheme, p.plan, m.call_seconds);
  const StepFlops flops = flops_of(step);
  const Utilization used = utilization_of(p);
  out += card("Utilization, model FLOPs", fmt::format("{:.1f}%", 100 * used.model),
              fmt::format("{} a step, {:.1f} GFLOP/s", human_flops(flops.model),
                          flops.model / m.step_seconds / 1e9));
  out += card("Utilization, hardware FLOPs", fmt::format("{:.1f}%", 100 * used.hardware),
              fmt::format("{} with what is recomputed", human_flops(flops.hardware)));
  out += card("The machine's peak, measured", fmt::format("{:.1f} GFLOP/s", p.peak.flops / 1e9),
              fmt::format("{}; memory {:.1f} GB/s",
                          p.peak.target == Target::kCuda
                              ? "bf16 product"
                              : fmt::format("float32 product, {} thread{}", p.peak.threads,
                                            p.peak.threads == 1 ? "" : "s"),
                          p.peak.bytes_per_second / 1e9));
  return out + "</div>\n";
}

// A column of a table: how wide it is, and whether narrow screens show it.
struct Column {
  std::string_view title;
  int percent = 0;
  bool more = false;
};

std::string head_of(const std::vector<Column>& columns) {
  std::string out = "<tr>";
  for (const Column& c : columns) {
    out += fmt::format("<th{} style=\"width:{}%\">{}</th>", c.more ? " class=more" : "", c.percent,
                       c.title);
  }
  return out + "</tr>\n";
}

std::string cell(std::string_view text, bool more = false, bool zero = false) {
  if (!more && !zero) return fmt::format("<td>{}</td>", text);
  return fmt::format("<td class=\"{}{}{}\">{}</td>", more ? "more" : "", more && zero ? " " : "",
                     zero ? "zero" : "", text);
}

std::string colour_of(Kind kind) {
  if (kind == Kind::kRecomputation) return "class=recomputation";
  return fmt::format("style=\"background:var(--{})\"", shades_of(tone_of(kind)).name);
}

std::string width_and_colour(Kind kind, double percent) {
  if (kind == Kind::kRecomputation) {
    return fmt::format("class=recomputation style=\"width:{:.2f}%\"", percent);
  }
  return fmt::format("style=\"width:{:.2f}%;background:var(--{})\"", percent,
                     shades_of(tone_of(kind)).name);
}

std::string share_of(double share) { return fmt::format("{:.1f}%", 100 * share); }

struct PageRow {
  std::string html;
  double share = 0;
};

// The table with its sum. Rows that are small, and together not much, are in a second table of the
// same columns that opens when asked.
std::string table_of(const std::vector<Column>& columns, const std::vector<PageRow>& rows,
                     const std::string& sum) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rows[a].share < rows[b].share; });
  std::vector<bool> folded(rows.size(), false);
  double together = 0;
  size_t count = 0;
  for (const size_t i : order) {
    if (rows[i].share >= kSmall || together + rows[i].share > kMostFolded) break;
    folded[i] = true, together += rows[i].share, ++count;
  }
  if (count < 2) folded.assign(rows.size(), false), count = 0;
  std::string shown, small;
  for (size_t i = 0; i < rows.size(); ++i) (folded[i] ? small : shown) += rows[i].html;
  std::string out = "<table>" + head_of(columns) + shown + sum + "</table>\n";
  if (count > 0) {
    out += fmt::format(
        "<details><summary>{} more, {} together</summary>\n<table>{}{}</table>"
        "</details>\n",
        count, share_of(together), head_of(columns), small);
  }
  return out;
}

std::string memory_table(const Plan& plan, Tier tier) {
  const std::vector<Column> columns = {
      {"category", 23}, {"memory", 19}, {"bytes", 18, true}, {"share", 13}, {"", 27}};
  const Bytes arena = plan.arena_of(tier).size;
  const std::vector<Bytes> bytes = plan.at_peak(tier);
  const auto share = [&](Bytes b) {
    return static_cast<double>(b.count) / static_cast<double>(std::max<int64_t>(1, arena.count));
  };
  const auto row = [&](std::string_view what, Bytes b, const std::string& bar) {
    return fmt::format("<td>{}</td><td>{}</td>{}<td>{}</td><td>{}</td></tr>\n", what, human(b),
                       cell(with_commas(b.count), true), share_of(share(b)), bar);
  };
  const auto bar = [&](Bytes b, const std::string& colour) {
    return fmt::format("<div class=bar><i {} title=\"{}\"></i></div>", colour, human(b));
  };
  std::vector<PageRow> rows;
  Bytes live{0};
  for (int c = 0; c < kNumCategories; ++c) {
    if (bytes[c].count == 0) continue;
    const auto category = static_cast<Category>(c);
    rows.push_back({"<tr>" + row(name(category), bytes[c],
                                 bar(bytes[c], fmt::format("style=\"width:{:.2f}%;background:"
                                                           "var(--{})\"",
                                                           100 * share(bytes[c]),
                                                           shades_of(tone_of(category)).name))),
                    share(bytes[c])});
    live += bytes[c];
  }
  const Bytes gaps = arena - live;
  rows.push_back({"<tr>" + row("gaps", gaps,
                               bar(gaps, fmt::format("class=gaps style=\"width:{:.2f}%\"",
                                                     100 * share(gaps)))),
                  share(gaps)});
  return table_of(columns, rows, "<tr class=sum>" + row("peak", arena, ""));
}

std::string memory_section(const Profile& p) {
  std::string out;
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    if (p.plan.arena_of(tier).size.count == 0) continue;
    out += fmt::format("<h2>{}</h2>\n{}",
                       tier == Tier::kDevice ? "Memory at the peak" : "The host's tier at its peak",
                       memory_table(p.plan, tier));
  }
  return out;
}

std::string legend_of_kinds(const TimeRow& step) {
  std::string out = "<div class=legend>";
  for (int k = 0; k < kNumKinds; ++k) {
    if (step.seconds[k] <= 0) continue;
    const auto kind = static_cast<Kind>(k);
    out += fmt::format("<span><i {}></i>{}</span>", colour_of(kind), name(kind));
  }
  return out + "</div>\n";
}

std::string time_section(std::string_view title, std::string_view first,
                         const std::vector<TimeRow>& rows, const TimeRow& step) {
  std::vector<Column> columns = {{first, 22}, {"calls", 7, true}};
  for (int k = 0; k < kNumKinds; ++k) {
    const std::string_view title = name(static_cast<Kind>(k));
    if (step.seconds[k] > 0) columns.push_back({title, title.size() > 9 ? 12 : 9, true});
  }
  columns.insert(columns.end(), {{"ms", 11}, {"share", 10}, {"GFLOP/s", 10, true}, {"", 15}});
  double longest = 1e-12;
  for (const TimeRow& row : rows) longest = std::max(longest, row.total_seconds());
  const double all = std::max(step.total_seconds(), 1e-12);
  const auto line = [&](const TimeRow& row, bool sum) {
    const double total = row.total_seconds();
    std::string out = sum ? "<tr class=sum>" : "<tr>";
    out += cell(escaped(row.name)) + cell(std::to_string(row.calls), true);
    std::string bar;
    for (int k = 0; k < kNumKinds; ++k) {
      if (step.seconds[k] <= 0) continue;
      const double s = row.seconds[k];
      out += cell(s > 0 ? fmt::format("{:.2f}", 1e3 * s) : "0", true, s <= 0);
      if (s <= 0 || sum) continue;
      const auto kind = static_cast<Kind>(k);
      bar += fmt::format("<i {} title=\"{}\"></i>", width_and_colour(kind, 100 * s / longest),
                         name(kind));
    }
    out += cell(fmt::format("{:.2f}", 1e3 * total)) + cell(share_of(total / all));
    out += cell(total > 0 ? fmt::format("{:.1f}", row.total_flops() / total / 1e9) : "0", true);
    return out + "<td>" + (sum ? "" : "<div class=bar>" + bar + "</div>") + "</td></tr>\n";
  };
  std::vector<PageRow> lines;
  for (const TimeRow& row : rows) lines.push_back({line(row, false), row.total_seconds() / all});
  return fmt::format("<h2>{}</h2>\n{}{}", title, legend_of_kinds(step),
                     table_of(columns, lines, line(step, true)));
}

}  // namespace

std::string profile_page(const Profile& p, const std::vector<Picture>& pictures) {
  const std::vector<double>& seconds = p.measured.call_seconds;
  const TimeRow step = time_of_step(p.scheme, p.plan, seconds);
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n<meta name=viewport "
      "content=\"width=device-width, initial-scale=1\">\n<title>Profile of "
      "{0}</title>\n<style>{1}</style></head>\n"
      "<body>\n<h1>Profile of {0}</h1>\n<p class=sub>{2}; stack {3}</p>\n",
      escaped(p.step.model), page_style() + std::string(kStyle), escaped(p.step.title),
      p.step.stack.empty() ? "of the defaults" : "<code>" + escaped(p.step.stack) + "</code>");
  out += cards(p) + memory_section(p);
  for (const Picture& picture : pictures) {
    out += fmt::format(
        "<h2>{}</h2>\n<p class=narrow>The chart is wider than this screen: drag it sideways.</p>\n"
        "<figure tabindex=0>{}</figure>\n",
        escaped(picture.title), picture.svg);
  }
  out += time_section("Time by op", "op", time_by_op(p.scheme, p.plan, seconds), step);
  out += time_section("Time by block", "block", time_by_block(p.scheme, p.plan, seconds), step);
  return out + "</body></html>\n";
}

}  // namespace adjoint
