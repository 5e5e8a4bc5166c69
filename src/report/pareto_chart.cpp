#include "report/pareto_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "report/scale.h"
#include "report/svg.h"

namespace adjoint {

namespace {

constexpr double kLeft = 78, kTop = 66, kWidth = 520, kHeight = 380, kBelow = 54;
constexpr double kList = 400, kListGap = 26, kLine = 17, kRight = 16;
constexpr std::string_view kGrid = "stroke=\"#d8d8d8\" stroke-width=\"0.7\"";
constexpr std::string_view kInk = "#004b76", kFaint = "#aeb6bd", kChosen = "#bb4a05";

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
      : chart_(chart), faint_(dominated(chart.points)), order_(chart.points.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](int a, int b) {
      const ParetoPoint &p = chart.points[a], &q = chart.points[b];
      return p.bytes != q.bytes ? p.bytes < q.bytes : p.seconds < q.seconds;
    });
    double least = 1e300, most = 0, soonest = 1e300, latest = 0;
    for (const ParetoPoint& p : chart.points) {
      least = std::min(least, static_cast<double>(p.bytes.count));
      most = std::max(most, static_cast<double>(p.bytes.count));
      soonest = std::min(soonest, p.seconds), latest = std::max(latest, p.seconds);
    }
    if (chart.budget) {
      least = std::min(least, static_cast<double>(chart.budget->count));
      most = std::max(most, static_cast<double>(chart.budget->count));
    }
    if (chart.points.empty()) least = 0, most = 1, soonest = 0, latest = 1;
    const auto [x0, x1] = with_air(least, most);
    const auto [y0, y1] = with_air(soonest, latest);
    bytes_ = bytes_scale(x0, x1, 6);
    seconds_ = seconds_scale(y0, y1, 6);
  }

  std::string draw() {
    const auto rows = static_cast<double>(chart_.points.size());
    const double height = std::max(kTop + kHeight + kBelow, kTop + (rows + 2) * kLine);
    const double width = kLeft + kWidth + kListGap + kList + kRight;
    Svg svg(width, height, chart_.title, "memory against time of a step");
    svg.text(kLeft, 24, fitted(chart_.title, 16, width - kLeft - kRight),
             {.size = 16, .bold = true}, chart_.title);
    svg.text(kLeft, 42, fitted(chart_.subtitle, 11.5, width - kLeft - kRight),
             {.size = 11.5, .fill = "#555"}, chart_.subtitle);
    draw_axes(svg);
    draw_budget(svg);
    draw_front(svg);
    draw_points(svg);
    draw_list(svg);
    return svg.str();
  }

 private:
  double x(const ParetoPoint& p) const { return x(static_cast<double>(p.bytes.count)); }
  double x(double bytes) const { return kLeft + kWidth * bytes_.at(bytes); }
  double y(const ParetoPoint& p) const { return y(p.seconds); }
  double y(double seconds) const { return kTop + kHeight * (1 - seconds_.at(seconds)); }

  void draw_axes(Svg& svg) {
    for (const Tick& t : bytes_.ticks) {
      svg.line(x(t.at), kTop, x(t.at), kTop + kHeight, kGrid);
      svg.text(x(t.at), kTop + kHeight + 17, t.label, {.size = 11.5, .anchor = Anchor::kMiddle});
    }
    for (const Tick& t : seconds_.ticks) {
      svg.line(kLeft, y(t.at), kLeft + kWidth, y(t.at), kGrid);
      svg.text(kLeft - 7, y(t.at) + 4, t.label, {.size = 11.5, .anchor = Anchor::kEnd});
    }
    svg.rect(kLeft, kTop, kWidth, kHeight, "fill=\"none\" stroke=\"#555\" stroke-width=\"1\"");
    svg.text(kLeft + kWidth / 2, kTop + kHeight + 38, "peak memory of a step",
             {.size = 12, .anchor = Anchor::kMiddle});
    svg.text(18, kTop + kHeight / 2, "time of a step",
             {.size = 12, .anchor = Anchor::kMiddle, .turned = -90});
  }

  void draw_budget(Svg& svg) {
    if (!chart_.budget) return;
    const double at = x(static_cast<double>(chart_.budget->count));
    svg.line(at, kTop, at, kTop + kHeight,
             "stroke=\"#222\" stroke-width=\"1\" stroke-dasharray=\"5 3\"");
    const std::string words = "budget " + human(*chart_.budget);
    const bool left = at + text_width(words, 11) + 6 > kLeft + kWidth;
    svg.text(at + (left ? -5 : 5), kTop + 13, words,
             {.size = 11, .anchor = left ? Anchor::kEnd : Anchor::kStart});
    const double wide = text_width(words, 11) + 8;
    taken_.push_back({left ? at - wide : at, kTop, left ? at : at + wide, kTop + 18});
  }

  // A staircase: with less memory than a point needs, only the next point to the left is possible.
  void draw_front(Svg& svg) {
    std::string path;
    double last = 0;
    for (const int i : order_) {
      if (faint_[i]) continue;
      const ParetoPoint& p = chart_.points[i];
      if (path.empty()) {
        path = fmt::format("M{} {}", short_number(x(p)), short_number(y(p)));
      } else {
        path += fmt::format("H{}V{}", short_number(x(p)), short_number(y(p)));
      }
      last = x(p);
    }
    if (path.empty()) return;
    if (last < kLeft + kWidth) path += fmt::format("H{}", short_number(kLeft + kWidth));
    svg.path(path, fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\" "
                               "stroke-opacity=\"0.55\"",
                               kInk));
  }

  std::string_view colour(int i) const {
    return chart_.points[i].chosen ? kChosen : faint_[i] ? kFaint : kInk;
  }

  void draw_points(Svg& svg) {
    for (const ParetoPoint& p : chart_.points) {
      taken_.push_back({x(p) - 5, y(p) - 5, x(p) + 5, y(p) + 5});
    }
    // Faint points are drawn first, so that they cover no others.
    for (const bool faint : {true, false}) {
      for (size_t k = 0; k < order_.size(); ++k) {
        const int i = order_[k];
        if (faint_[i] != faint) continue;
        const ParetoPoint& p = chart_.points[i];
        const std::string hint =
            fmt::format("{}: {}, {}", p.label, human(p.bytes), human_seconds(p.seconds));
        if (p.chosen) {
          svg.circle(x(p), y(p), 8,
                     fmt::format("fill=\"#fff\" stroke=\"{}\" stroke-width=\"2\"", kChosen));
        }
        svg.circle(x(p), y(p), 4, fmt::format("fill=\"{}\"", colour(i)), hint);
      }
    }
    for (size_t k = 0; k < order_.size(); ++k) draw_number(svg, order_[k], k + 1);
  }

  // Draws the number where there is room around the point; if there is none, the hint and the list
  // must do.
  void draw_number(Svg& svg, int i, size_t number) {
    const ParetoPoint& p = chart_.points[i];
    const std::string text = std::to_string(number);
    const double w = text_width(text, 10.5), h = 11, far = p.chosen ? 11 : 7;
    const std::pair<double, double> corners[] = {
        {far, -far - h + 6}, {far, far - 6}, {-far - w, -far - h + 6}, {-far - w, far - 6},
        {-w / 2, -far - h},  {-w / 2, far},  {far + 9, -h / 2},        {-far - w - 9, -h / 2}};
    for (const auto& [dx, dy] : corners) {
      const Box box{x(p) + dx, y(p) + dy, x(p) + dx + w, y(p) + dy + h};
      const bool inside =
          box.x0 > kLeft && box.x1 < kLeft + kWidth && box.y0 > kTop && box.y1 < kTop + kHeight;
      const auto meets = [&](const Box& other) { return box.meets(other); };
      if (!inside || std::any_of(taken_.begin(), taken_.end(), meets)) continue;
      svg.text(box.x0, box.y1 - 2, text, {.size = 10.5, .fill = faint_[i] ? "#777" : "#222"});
      taken_.push_back(box);
      return;
    }
  }

  void draw_list(Svg& svg) {
    const double left = kLeft + kWidth + kListGap, right = left + kList;
    double at = kTop + 8;
    const auto line = [&](std::string_view number, std::string_view label, std::string_view bytes,
                          std::string_view seconds, const TextStyle& style) {
      TextStyle end = style;
      end.anchor = Anchor::kEnd;
      svg.text(left + 18, at, number, end);
      svg.text(left + 26, at, fitted(label, style.size, kList - 26 - 140), style, label);
      svg.text(right - 62, at, bytes, end);
      svg.text(right, at, seconds, end);
      at += kLine;
    };
    line("", "choice", "memory", "time", {.size = 11.5, .bold = true});
    for (size_t k = 0; k < order_.size(); ++k) {
      const int i = order_[k];
      const ParetoPoint& p = chart_.points[i];
      const std::string_view ink = p.chosen ? kChosen : faint_[i] ? "#777" : "#222";
      line(std::to_string(k + 1), p.label + (p.chosen ? " (chosen)" : ""), human(p.bytes),
           human_seconds(p.seconds), {.size = 11.5, .fill = ink, .bold = p.chosen});
    }
  }

  const ParetoChart& chart_;
  std::vector<bool> faint_;
  std::vector<int> order_;  // points by memory; a point's position is its number
  Scale bytes_, seconds_;
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

std::string pareto_chart(const ParetoChart& chart) { return Plot(chart).draw(); }

}  // namespace adjoint
