// One plot of a memory chart: the areas of a timeline and its peak, above them the parts of the
// batch and the phases, and below them blocks, calls, copies, collectives and time. Files of long
// steps stay small: of all calls that share a pixel only the largest is drawn.
#pragma once
#include <limits>

#include "report/scale.h"
#include "report/svg.h"
#include "report/timeline.h"

namespace adjoint {

// Where a plot is, and how its time becomes pixels. Parts of the batch that are not shown leave a
// fold, whose width has no meaning.
struct Frame {
  double x = 0, y = 0, width = 0, height = 0;
  double span = 1;  // time, or calls, over the whole width
  double fold_at = std::numeric_limits<double>::infinity(), fold_width = 0;

  double right() const { return x + width; }
  double bottom() const { return y + height; }
  // Where something is drawn that begins or ends then: on the right or on the left of a fold.
  double begin(double when) const { return at(when) + (when >= fold_at ? fold_width : 0); }
  double end(double when) const { return at(when) + (when > fold_at ? fold_width : 0); }

 private:
  double at(double when) const { return x + (width - fold_width) * when / span; }
};
constexpr double kFoldWidth = 64;

// What is drawn around a plot. Panels side by side have the same rows: all that any of them needs.
struct PanelRows {
  // Above the plot.
  size_t title_lines = 0, peak_lines = 0;
  bool sections = false, callouts = false;
  // Below it.
  bool calls = false, blocks = false, from_host = false, to_host = false;
  size_t spoken = 0;  // axes of the mesh, a row of collectives each
  size_t axis_lines = 1;

  void unite(const PanelRows& other);
  double above() const;
  double below() const;
};
PanelRows rows_of(const std::string& title, const Timeline& timeline, const Frame& frame);

// `labelled`: with the byte axis and the names of the rows at the left.
void draw_panel(Svg& svg, const std::string& title, const Timeline& timeline, const Frame& frame,
                const Scale& scale, const PanelRows& rows, bool labelled);

bool has_kind(const Timeline& timeline, Kind kind);
// The fill of a kind of call: a colour, or the hatching of recomputation.
std::string fill_of(Kind kind);

// The rows around the areas (panel_rows.cpp), from top to bottom.
void draw_above(Svg& svg, const std::string& title, const Timeline& timeline, const Frame& frame,
                const PanelRows& rows);
void draw_below(Svg& svg, const Timeline& timeline, const Frame& frame, const PanelRows& rows,
                bool labelled);

}  // namespace adjoint
