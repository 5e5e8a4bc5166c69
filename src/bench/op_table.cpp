// Prints an OpBench as a table and as JSON.
#include <fmt/format.h>

#include "base/counts.h"
#include "bench/op_bench.h"

namespace adjoint {

using nlohmann::json;

namespace {

constexpr double kClose = 0.9;  // share of the bare loop's rate that a product in a step must reach
constexpr size_t kNameWidth = 64;  // JSON has whole names

std::string shortened(const std::string& text) {
  return text.size() <= kNameWidth ? text : text.substr(0, kNameWidth - 3) + "...";
}

double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

bool is_plain_product(const OpRow& row) { return row.bare && !row.more; }

}  // namespace

ProductSums product_sums(const OpBench& bench) {
  ProductSums sums;
  for (const OpRow& row : bench.rows) {
    if (!is_plain_product(row)) continue;
    sums.in_step += row.step_seconds();
    sums.bare += static_cast<double>(row.times) * *row.bare;
    ++sums.rows;
    sums.slow += *row.bare < kClose * row.in_step;
  }
  return sums;
}

json op_bench_json(const OpBench& b) {
  json rows = json::array();
  for (const OpRow& row : b.rows) {
    json each = {{"call", row.call},
                 {"op", row.op},
                 {"times", row.times},
                 {"flops", row.flops},
                 {"bytes", row.bytes},
                 {"measured_step_s", row.step_seconds()},
                 {"call_s", row.in_step},
                 {"alone_s", row.alone},
                 {"floor_s", row.floor},
                 {"of_floor", per_second(row.floor, row.in_step)},
                 {"flops_per_s", per_second(row.flops, row.in_step)},
                 {"bytes_per_s", per_second(row.bytes, row.in_step)}};
    if (row.bare) {
      each["bare_s"] = *row.bare;
      each["bare_flops_per_s"] = per_second(row.flops, *row.bare);
      each["of_bare"] = per_second(*row.bare, row.in_step);
      each["more_than_bare"] = row.more;
    }
    rows.push_back(each);
  }
  json out = {{"model", b.step.model},
              {"batch", b.step.batch},
              {"seq", b.step.context},
              {"stack", b.step.stack},
              {"threads", b.peak.threads},
              {"device", name(b.peak.target)},
              {"peak_flops_per_s", b.peak.flops},
              {"peak_bytes_per_s", b.peak.bytes_per_second},
              {"measured_step_s", b.step_seconds},
              {"calls", rows}};
  const ProductSums sums = product_sums(b);
  if (sums.rows > 0) {
    out["products"] = {{"measured_step_s", sums.in_step},
                       {"bare_s", sums.bare},
                       {"of_bare", per_second(sums.bare, sums.in_step)},
                       {"calls", sums.rows},
                       {"calls_below_90_percent", sums.slow}};
  }
  return out;
}

std::string op_bench_table(const OpBench& b) {
  const bool gpu = b.peak.target == Target::kCuda;
  std::string out = fmt::format(
      "measured peak: {:.1f} GFLOP/s{}, {:.1f} GB/s{}; a step takes {:.2f} ms\n\n"
      "{:<{}} {:>5} {:>9} {:>8} {:>7} {:>8} {:>9}{}\n",
      b.peak.flops / 1e9, gpu ? " in bf16" : "", b.peak.bytes_per_second / 1e9,
      gpu ? "" : " with " + counted(b.peak.threads, "thread"), 1e3 * b.step_seconds, "call",
      kNameWidth, "times", "ms", "GFLOP/s", "GB/s", "of floor", "alone ms",
      gpu ? "" : fmt::format(" {:>9} {:>8}", "bare ms", "of bare"));
  double sum = 0, floor = 0;
  bool any_more = false;
  for (const OpRow& row : b.rows) {
    const auto times = static_cast<double>(row.times);
    out += fmt::format("{:<{}} {:>5} {:>9.3f} {:>8.1f} {:>7.1f} {:>7.0f}% {:>9.3f}",
                       shortened(row.call), kNameWidth, row.times, 1e3 * row.step_seconds(),
                       per_second(row.flops, row.in_step) / 1e9,
                       per_second(row.bytes, row.in_step) / 1e9,
                       100 * per_second(row.floor, row.in_step), 1e3 * times * row.alone);
    if (row.bare) {
      out += fmt::format(" {:>9.3f} {:>7.0f}%{}", 1e3 * times * *row.bare,
                         100 * per_second(*row.bare, row.in_step), row.more ? "*" : "");
      any_more |= row.more;
    }
    out += "\n";
    sum += row.step_seconds();
    floor += times * row.floor;
  }
  out += fmt::format("{:<{}} {:>5} {:>9.3f} {:>8} {:>7} {:>7.0f}%\n", "all of these", kNameWidth,
                     "", 1e3 * sum, "", "", 100 * per_second(floor, sum));
  if (any_more) out += "* with an activation behind the product; the bare loop is the product\n";
  if (const ProductSums sums = product_sums(b); sums.rows > 0) {
    out += fmt::format(
        "products: {:.2f} ms in the step, {:.2f} ms in bare loops over oneDNN: {:.0f}%; {} of {} "
        "kinds below {:.0f}%\n",
        1e3 * sums.in_step, 1e3 * sums.bare, 100 * per_second(sums.bare, sums.in_step), sums.slow,
        sums.rows, 100 * kClose);
  }
  return out;
}

}  // namespace adjoint
