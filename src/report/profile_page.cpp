// Cards with the main numbers, then memory, the charts, and time. Bars are plain HTML; the four
// colours are from Okabe and Ito's palette for colour-blind readers, in order of lightness.
#include "report/profile_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/step_times.h"

namespace adjoint {

namespace {

constexpr std::string_view kStyle = R"(
:root { --ink: #1b1f24; --soft: #5c6670; --line: #d9dee3; --card: #f6f8fa; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 28px 24px 64px; color: var(--ink);
  background: #fff; font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 2px; } h2 { font-size: 18px; margin: 36px 0 10px; }
.sub { color: var(--soft); margin: 0 0 20px; } code { font-size: 13px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(205px, 1fr)); gap: 12px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 12px 14px; }
.card b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: 14px; }
th { text-align: right; font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--line);
  padding: 4px 10px; white-space: nowrap; }
td { text-align: right; border-bottom: 1px solid var(--line); padding: 4px 10px;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.name { white-space: normal; max-width: 330px; overflow-wrap: anywhere; }
td.zero { color: #b4bcc4; }
tr.sum td { font-weight: 600; border-bottom: none; border-top: 2px solid var(--line); }
.bar { display: flex; height: 12px; min-width: 180px; background: var(--card); }
.bar i { display: block; height: 100%; }
.legend { display: flex; gap: 18px; margin: 0 0 8px; font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 11px; height: 11px; margin-right: 6px; }
figure { margin: 0 0 20px; } figure svg { max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: 13px; }
@media print { body { max-width: none; padding: 0; } h2 { break-after: avoid; } }
)";

constexpr std::string_view kColours[] = {"#0072b2", "#e69f00", "#cc79a7", "#009e73"};

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
          ? fmt::format("predicted {:.4g} ms, {:+.0f}%", 1e3 * p.predicted_seconds,
                        100 * (m.step_seconds / p.predicted_seconds - 1))
          : "";
  out += card("Step, median", fmt::format("{:.4g} ms", 1e3 * m.step_seconds), predicted);
  out += card("Tokens per second",
              with_commas(static_cast<int64_t>(static_cast<double>(p.step.batch * p.step.context) /
                                               m.step_seconds)),
              fmt::format("{} x {} a step", p.step.batch, p.step.context));
  const TimeRow step = time_of_step(p.scheme, p.plan, m.call_seconds);
  const StepFlops flops = flops_of(step);
  const Utilization used = utilization_of(p);
  out += card(
      "Utilization, model FLOPs", fmt::format("{:.1f}%", 100 * used.model),
      fmt::format("{:.4g} FLOPs, {:.1f} GFLOP/s", flops.model, flops.model / m.step_seconds / 1e9));
  out += card("Utilization, hardware FLOPs", fmt::format("{:.1f}%", 100 * used.hardware),
              fmt::format("{:.4g} with what is recomputed", flops.hardware));
  out += card("The machine's peak, measured", fmt::format("{:.1f} GFLOP/s", p.peak.flops / 1e9),
              fmt::format("{}; memory {:.1f} GB/s",
                          p.peak.target == Target::kCuda
                              ? "bf16 product"
                              : fmt::format("float32 product, {} thread{}", p.peak.threads,
                                            p.peak.threads == 1 ? "" : "s"),
                          p.peak.bytes_per_second / 1e9));
  return out + "</div>\n";
}

std::string memory_rows(const Plan& plan, Tier tier) {
  const Bytes arena = plan.arena_of(tier).size;
  const std::vector<Bytes> bytes = plan.at_peak(tier);
  std::string out;
  Bytes live{0};
  const auto row = [&](std::string_view what, Bytes b, bool sum) {
    const double share = 100.0 * static_cast<double>(b.count) /
                         static_cast<double>(std::max<int64_t>(1, arena.count));
    out += fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}%</td><td>",
                       sum ? " class=sum" : "", what, human(b), with_commas(b.count), share);
    if (!sum) {
      out += fmt::format("<div class=bar><i style=\"width:{:.2f}%;background:{}\"></i></div>",
                         share, kColours[0]);
    }
    out += "</td></tr>\n";
  };
  for (int c = 0; c < kNumCategories; ++c) {
    if (bytes[c].count == 0) continue;
    row(name(static_cast<Category>(c)), bytes[c], false);
    live += bytes[c];
  }
  row("gaps", arena - live, false);
  row("peak", arena, true);
  return out;
}

std::string memory_section(const Profile& p) {
  std::string out;
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    if (p.plan.arena_of(tier).size.count == 0) continue;
    out += fmt::format(
        "<h2>{}</h2>\n<div class=wide><table><tr><th>category</th><th></th><th>bytes</th><th>share"
        "</th><th></th></tr>\n{}</table></div>\n",
        tier == Tier::kDevice ? "Memory at the peak" : "The host's tier at its peak",
        memory_rows(p.plan, tier));
  }
  return out;
}

std::string time_section(std::string_view title, std::string_view first,
                         const std::vector<TimeRow>& rows, const TimeRow& step) {
  double longest = 1e-12;
  for (const TimeRow& row : rows) longest = std::max(longest, row.total_seconds());
  std::string out = fmt::format("<h2>{}</h2>\n<div class=legend>", title);
  for (int k = 0; k < kNumKinds; ++k) {
    out += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", kColours[k],
                       name(static_cast<Kind>(k)));
  }
  out += fmt::format("</div>\n<div class=wide><table><tr><th>{}</th><th>calls</th>", first);
  for (int k = 0; k < kNumKinds; ++k) {
    out += fmt::format("<th>{}</th>", name(static_cast<Kind>(k)));
  }
  out += "<th>ms</th><th>share</th><th>GFLOP/s</th><th></th></tr>\n";
  const auto line = [&](const TimeRow& row, bool sum) {
    const double total = row.total_seconds();
    out += fmt::format("<tr{}><td class=name>{}</td><td>{}</td>", sum ? " class=sum" : "",
                       escaped(row.name), row.calls);
    for (const double s : row.seconds) {
      out += s > 0 ? fmt::format("<td>{:.2f}</td>", 1e3 * s) : "<td class=zero>0</td>";
    }
    out += fmt::format("<td>{:.2f}</td><td>{:.1f}%</td><td>{:.1f}</td><td>", 1e3 * total,
                       100 * total / std::max(step.total_seconds(), 1e-12),
                       total > 0 ? row.total_flops() / total / 1e9 : 0);
    if (!sum) {
      out += "<div class=bar>";
      for (int k = 0; k < kNumKinds; ++k) {
        if (row.seconds[k] <= 0) continue;
        out += fmt::format("<i style=\"width:{:.2f}%;background:{}\"></i>",
                           100 * row.seconds[k] / longest, kColours[k]);
      }
      out += "</div>";
    }
    out += "</td></tr>\n";
  };
  for (const TimeRow& row : rows) line(row, false);
  line(step, true);
  return out + "</table></div>\n";
}

}  // namespace

std::string profile_page(const Profile& p, const std::vector<Picture>& pictures) {
  const std::vector<double>& seconds = p.measured.call_seconds;
  const TimeRow step = time_of_step(p.scheme, p.plan, seconds);
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n<meta name=viewport "
      "content=\"width=device-width\">\n<title>Profile of {0}</title>\n<style>{1}</style></head>\n"
      "<body>\n<h1>Profile of {0}</h1>\n<p class=sub>{2}; stack {3}</p>\n",
      escaped(p.step.model), kStyle, escaped(p.step.title),
      p.step.stack.empty() ? "of the defaults" : "<code>" + escaped(p.step.stack) + "</code>");
  out += cards(p) + memory_section(p);
  for (const Picture& picture : pictures) {
    out += fmt::format("<h2>{}</h2>\n<figure>{}</figure>\n", escaped(picture.title), picture.svg);
  }
  out += time_section("Time by op", "op", time_by_op(p.scheme, p.plan, seconds), step);
  out += time_section("Time by block", "block", time_by_block(p.scheme, p.plan, seconds), step);
  return out + "</body></html>\n";
}

}  // namespace adjoint
