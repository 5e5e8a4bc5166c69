#include "report/pareto_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "report/scale.h"
#include "report/svg.h"

namespace adjoint {

namespace {

constexpr double kLeft = 78, kWidth = 690, kHeight = 330, kRight = 22, kAboveFrame = 46,
                 kBelowFrame = 50;
constexpr double kLine = 17, kSize = 11.5;
// Right edges of the list's columns, from the right edge of the plot.
constexpr double kTimeColumn = 0, kShareColumn = 62, kMemoryColumn = 128, kAgainColumn = 212;
constexpr double kLabelLeft = 30, kLabelWidth = kWidth - kAgainColumn - 92 - kLabelLeft;

struct Box {
  double x0, y0, x1, y1;
  bool meets(const Box& o) const { return x0 < o.x1 && o.x0 < x1 && y0 < o.y1 && o.y0 < y1; }
};

// The range with some margin, so that no point is on the frame.
std::pair<double, double> with_air(double least, double most) {
  const double air = most > least ? 0.08 * (most - least) : 0.1 * std::max(most, 1e-9);
  return {std::max(0.0, least - air), most + air};
}

class Plot {
 public:
  explicit Plot(const ParetoChart& chart)
      : chart_(chart),
        faint_(dominated(chart.points)),
        cut_(cut_off(chart.points)),
        order_(chart.points.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](int a, int b) {
      const ParetoPoint &p = chart.points[a], &q = chart.points[b];
      return p.bytes != q.bytes ? p.bytes < q.bytes : p.seconds < q.seconds;
    });
    double least = 1e300, most = 0, latest = 0;
    fastest_ = 1e300;
    for (size_t i = 0; i < chart.points.size(); ++i) {
      const ParetoPoint& p = chart.points[i];
      least = std::min(least, static_cast<double>(p.bytes.count));
      most = std::max(most, static_cast<double>(p.bytes.count));
      fastest_ = std::min(fastest_, p.seconds);
      if (!cut_[i]) latest = std::max(latest, p.seconds);
    }
    if (chart.points.empty()) least = 0, most = 1, fastest_ = 1, latest = 1;
    if (chart.budget) {
      least = std::min(least, static_cast<double>(chart.budget->count));
      most = std::max(most, static_cast<double>(chart.budget->count));
    }
    fastest_ = std::max(fastest_, 1e-12);
    const auto [x0, x1] = with_air(least, most);
    auto [y0, y1] = with_air(1, latest / fastest_);
    // What is cut off is marked above the others.
    if (std::find(cut_.begin(), cut_.end(), true) != cut_.end()) y1 += 0.1 * (y1 - y0);
    bytes_ = bytes_scale(x0, x1, 7);
    times_ = times_scale(y0, y1, 6);
    whole_ = chart.everything_kept ? chart.everything_kept : chart.budget;
    title_ = wrapped(chart.title, 16, kWidth, true);
    subtitle_ = wrapped(chart.subtitle, 12, kWidth);
    cut_words_ = wrapped(words_of_cut(), 12, kWidth);
    const double head =
        20 * static_cast<double>(title_.size()) + 17 * static_cast<double>(subtitle_.size());
    top_ = 14 + head + kAboveFrame - (whole_ ? 0 : 30);
    list_ = top_ + kHeight + kBelowFrame + 16 * static_cast<double>(cut_words_.size()) + 18;
  }

  std::string draw() {
    double rows = 0;
    for (const int i : order_) rows += static_cast<double>(label_lines(i).size());
    const double width = kLeft + kWidth + kRight;
    Svg svg(width, list_ + kLine * (rows + 1) + 6, chart_.title, description());
    double y = svg.text(kLeft, 24, title_, 20, {.size = 16, .bold = true});
    svg.text(kLeft, y - 1, subtitle_, 17, {.size = 12, .tone = Tone::kSoft});
    draw_axes(svg);
    draw_budget(svg);
    draw_front(svg);
    draw_points(svg);
    svg.text(kLeft, top_ + kHeight + kBelowFrame + 10, cut_words_, 16, {.size = 12});
    draw_list(svg);
    return svg.str();
  }

 private:
  double x(const ParetoPoint& p) const { return x(static_cast<double>(p.bytes.count)); }
  double x(double bytes) const { return kLeft + kWidth * bytes_.at(bytes); }
  double y(int i) const {
    return cut_[i] ? top_ + 12 : y_of_times(chart_.points[i].seconds / fastest_);
  }
  double y_of_times(double times) const { return top_ + kHeight * (1 - times_.at(times)); }
  double right() const { return kLeft + kWidth; }
  double bottom() const { return top_ + kHeight; }

  std::string times(const ParetoPoint& p, int digits = 2) const {
    return fmt::format("{:.{}f}x", p.seconds / fastest_, digits);
  }
  size_t number_of(int i) const {
    return static_cast<size_t>(std::find(order_.begin(), order_.end(), i) - order_.begin()) + 1;
  }

  std::string words_of_cut() const {
    std::string out;
    for (const int i : order_) {
      if (!cut_[i]) continue;
      const ParetoPoint& p = chart_.points[i];
      out += fmt::format("{} choice {}, with {}, takes {} ({})", out.empty() ? "" : ",",
                         number_of(i), human(p.bytes), times(p), human_seconds(p.seconds));
    }
    return out.empty() ? "" : "The axis of time is cut off:" + out + ".";
  }

  std::string description() const {
    std::string out =
        fmt::format("Memory against time of a step. 1.00x is {}.", human_seconds(fastest_));
    for (const int i : order_) {
      const ParetoPoint& p = chart_.points[i];
      out += fmt::format(" {}: {}, {}, {}.", number_of(i), p.label, human(p.bytes), times(p));
    }
    return out;
  }

  std::vector<std::string> label_lines(int i) const {
    const ParetoPoint& p = chart_.points[i];
    std::vector<std::string> lines =
        wrapped(p.label + (p.chosen ? " (chosen)" : ""), kSize, kLabelWidth, p.chosen);
    if (lines.empty()) lines.emplace_back();
    return lines;
  }

  void draw_axes(Svg& svg) {
    const std::string grid = stroked(Tone::kLine, 0.7);
    for (const Tick& t : bytes_.ticks) {
      svg.line(x(t.at), top_, x(t.at), bottom(), grid);
      svg.text(x(t.at), bottom() + 17, t.label, {.size = kSize, .anchor = Anchor::kMiddle});
    }
    for (const Tick& t : times_.ticks) {
      svg.line(kLeft, y_of_times(t.at), right(), y_of_times(t.at), grid);
      svg.text(kLeft - 7, y_of_times(t.at) + 4, t.label, {.size = kSize, .anchor = Anchor::kEnd});
    }
    svg.rect(kLeft, top_, kWidth, kHeight, stroked(Tone::kSoft, 1));
    svg.text(kLeft + kWidth / 2, bottom() + 37, "peak memory of a step",
             {.size = 12, .anchor = Anchor::kMiddle});
    const std::string time =
        fmt::format("time of a step; 1.00x is {}, the fastest", human_seconds(fastest_));
    svg.text(20, top_ + kHeight / 2, time, {.size = 12, .anchor = Anchor::kMiddle, .turned = -90});
    if (whole_) draw_shares(svg);
  }

  // The same memory as shares, along the upper edge.
  void draw_shares(Svg& svg) {
    const auto whole = static_cast<double>(whole_->count);
    for (const Tick& t : share_scale(bytes_.from / whole, bytes_.to / whole, 7).ticks) {
      const double at = x(t.at * whole);
      svg.line(at, top_ - 4, at, top_, stroked(Tone::kSoft, 1));
      svg.text(at, top_ - 8, t.label, {.size = kSize, .anchor = Anchor::kMiddle});
    }
    const std::string of =
        chart_.everything_kept ? "of the step with everything kept, " : "of the budget, ";
    svg.text(kLeft + kWidth / 2, top_ - 25, of + human(*whole_),
             {.size = 12, .anchor = Anchor::kMiddle});
  }

  void draw_budget(Svg& svg) {
    if (!chart_.budget) return;
    const double at = x(static_cast<double>(chart_.budget->count));
    svg.line(at, top_, at, bottom(), stroked(Tone::kInk, 1, "5 3"));
    const std::string words = "budget " + human(*chart_.budget);
    const double wide = text_width(words, 11) + 8;
    const bool left = at + wide > right();
    svg.text(at + (left ? -5 : 5), bottom() - 8, words,
             {.size = 11, .anchor = left ? Anchor::kEnd : Anchor::kStart});
    taken_.push_back({left ? at - wide : at, bottom() - 22, left ? at : at + wide, bottom()});
  }

  // A staircase: with less memory than a point needs, only the next point to the left is possible.
  // From a point that is cut off it comes down through the upper edge, dashed.
  void draw_front(Svg& svg) {
    std::string path;
    double last = 0;
    bool from_above = false;
    for (const int i : order_) {
      if (faint_[i]) continue;
      const ParetoPoint& p = chart_.points[i];
      if (cut_[i]) {
        from_above = true;
        continue;
      }
      if (path.empty()) {
        if (from_above) {
          svg.line(x(p), top_, x(p), y(i), stroked(Tone::kMark, 1.4, "3 3"));
          taken_.push_back({x(p) - 2, top_, x(p) + 2, y(i)});
        }
        path = fmt::format("M{} {}", short_number(x(p)), short_number(y(i)));
      } else {
        path += fmt::format("H{}V{}", short_number(x(p)), short_number(y(i)));
      }
      last = x(p);
    }
    if (path.empty()) return;
    if (last < right()) path += fmt::format("H{}", short_number(right()));
    svg.path(path, stroked(Tone::kMark, 1.4) + " stroke-opacity=\"0.6\"");
  }

  void draw_points(Svg& svg) {
    for (const int i : order_) {
      const double at = x(chart_.points[i]);
      taken_.push_back({at - 5, y(i) - 5, at + 5, y(i) + 5});
    }
    // Faint points are drawn first, so that they cover no others.
    for (const bool faint : {true, false}) {
      for (const int i : order_) {
        if (faint_[i] == faint) draw_point(svg, i);
      }
    }
    for (const int i : order_) draw_number(svg, i);
  }

  void draw_point(Svg& svg, int i) {
    const ParetoPoint& p = chart_.points[i];
    const std::string hint =
        fmt::format("{}: {}, {}, {}", p.label, human(p.bytes), times(p), human_seconds(p.seconds));
    const std::string style = filled(faint_[i] ? Tone::kIdle : Tone::kMark);
    if (p.chosen) svg.circle(x(p), y(i), 8, filled(Tone::kPaper, Tone::kInk, 2));
    if (!cut_[i]) {
      svg.circle(x(p), y(i), 4, style, hint);
      return;
    }
    // An arrow up: the point is further away.
    svg.path(fmt::format("M{} {}l5 9h-10z", short_number(x(p)), short_number(y(i) - 6)), style,
             hint);
  }

  // Draws the number where there is room, as near to the point as can be; a line leads to it from
  // afar.
  void draw_number(Svg& svg, int i) {
    const ParetoPoint& p = chart_.points[i];
    const std::string text = std::to_string(number_of(i)) + (cut_[i] ? ": " + times(p) : "");
    const double w = text_width(text, 11), h = 11, near = p.chosen ? 10 : 6;
    for (double far = near; far < 90; far += 8) {
      const std::pair<double, double> corners[] = {
          {far, -far - h + 4}, {far, far - 4}, {-far - w, -far - h + 4}, {-far - w, far - 4},
          {-w / 2, -far - h},  {-w / 2, far},  {far + 3, -h / 2},        {-far - w - 3, -h / 2}};
      for (const auto& [dx, dy] : corners) {
        const Box box{x(p) + dx, y(i) + dy, x(p) + dx + w, y(i) + dy + h};
        const bool inside =
            box.x0 > kLeft + 1 && box.x1 < right() - 1 && box.y0 > top_ + 1 && box.y1 < bottom();
        const auto meets = [&](const Box& other) { return box.meets(other); };
        if (!inside || std::any_of(taken_.begin(), taken_.end(), meets)) continue;
        if (far > near + 8) {
          svg.line(x(p), y(i), std::clamp(x(p), box.x0, box.x1), std::clamp(y(i), box.y0, box.y1),
                   stroked(Tone::kSoft, 0.6));
        }
        svg.text(box.x0, box.y1 - 1.5, text,
                 {.size = 11, .tone = faint_[i] ? Tone::kSoft : Tone::kInk});
        taken_.push_back(box);
        return;
      }
    }
  }

  void draw_list(Svg& svg) {
    double at = list_;
    const auto line = [&](std::string_view number, const std::vector<std::string>& label,
                          std::string_view again, std::string_view bytes, std::string_view share,
                          std::string_view time, const TextStyle& style) {
      TextStyle end = style;
      end.anchor = Anchor::kEnd;
      svg.text(kLeft + kLabelLeft - 10, at, number, end);
      svg.text(right() - kAgainColumn, at, again, end);
      svg.text(right() - kMemoryColumn, at, bytes, end);
      svg.text(right() - kShareColumn, at, share, end);
      svg.text(right() - kTimeColumn, at, time, end);
      at = svg.text(kLeft + kLabelLeft, at, label, kLine, style);
    };
    line("", {"choice, and what differs from the one above"}, "recomputed", "memory",
         whole_ ? "share" : "", "time", {.size = kSize, .tone = Tone::kSoft});
    for (const int i : order_) {
      const ParetoPoint& p = chart_.points[i];
      const std::string share =
          whole_ ? fmt::format("{:.0f}%", 100 * static_cast<double>(p.bytes.count) /
                                              static_cast<double>(whole_->count))
                 : "";
      const std::string again = p.recomputed >= 0.0005 ? fmt::format("{:.1f}%", 100 * p.recomputed)
                                : p.recomputed > 0     ? "< 0.1%"
                                                       : "none";
      line(std::to_string(number_of(i)), label_lines(i), again, human(p.bytes), share, times(p, 3),
           {.size = kSize, .tone = faint_[i] ? Tone::kSoft : Tone::kInk, .bold = p.chosen});
    }
  }

  const ParetoChart& chart_;
  std::vector<bool> faint_, cut_;
  std::vector<int> order_;  // points by memory; a point's position is its number
  double fastest_ = 1;
  std::optional<Bytes> whole_;  // what shares of memory refer to
  Scale bytes_, times_;
  std::vector<std::string> title_, subtitle_, cut_words_;
  double top_ = 0, list_ = 0;
  std::vector<Box> taken_;
};

}  // namespace

std::vector<bool> dominated(const std::vector<ParetoPoint>& points) {
  std::vector<bool> beaten(points.size(), false);
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t k = 0; k < points.size(); ++k) {
      const ParetoPoint &p = points[i], &q = points[k];
      const bool no_worse = q.bytes <= p.bytes && q.seconds <= p.seconds;
      const bool better = q.bytes < p.bytes || q.seconds < p.seconds;
      if (no_worse && (better || k < i)) beaten[i] = true;
    }
  }
  return beaten;
}

std::vector<bool> cut_off(const std::vector<ParetoPoint>& points) {
  std::vector<double> seconds;
  for (const ParetoPoint& p : points) seconds.push_back(p.seconds);
  std::sort(seconds.begin(), seconds.end());
  double limit = std::numeric_limits<double>::infinity();
  for (size_t cut = 1; cut <= points.size() / 4; ++cut) {
    const double slowest = seconds[seconds.size() - 1 - cut];
    if (slowest <= seconds[0] || slowest - seconds[0] >= (seconds.back() - seconds[0]) / 3) {
      continue;
    }
    limit = slowest;
    break;
  }
  std::vector<bool> out;
  for (const ParetoPoint& p : points) out.push_back(p.seconds > limit);
  return out;
}

std::string pareto_chart(const ParetoChart& chart) { return Plot(chart).draw(); }

}  // namespace adjoint
