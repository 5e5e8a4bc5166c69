// One plot of a memory chart: the areas of a timeline, its peak, and below them its phases, blocks
// and time. Files of long steps stay small: of all calls that share a pixel only the largest is
// drawn.
#pragma once
#include "report/scale.h"
#include "report/svg.h"
#include "report/timeline.h"

namespace adjoint {

struct Frame {
  double x = 0, y = 0, width = 0, height = 0;
  double span = 1;  // time, or calls, over the whole width
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

// Which rows are drawn below a plot. Panels side by side have the same rows: all that any of them
// needs.
struct PanelRows {
  bool sections = false, kinds = false, blocks = false;
  size_t spoken = 0;  // axes of the mesh, a row of collectives each
  double height() const;
};
PanelRows rows_of(const Timeline& timeline);

constexpr double kPanelTop = 58;  // above a plot: its title, and its peak in words

// `labelled`: with the byte axis and the names of the rows at the left.
void draw_panel(Svg& svg, const std::string& title, const Timeline& timeline, const Frame& frame,
                const Scale& scale, const PanelRows& rows, bool labelled);

bool has_kind(const Timeline& timeline, Kind kind);
std::string_view colour_of(Category category);
// Fill of a phase's band; recomputation is hatched by the pattern that kHatch defines.
std::string_view fill_of(Kind kind);
constexpr std::string_view kSpokenColour = "#7a1f5c";  // of collectives
constexpr std::string_view kHatch =
    "<defs><pattern id=\"again\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect width=\"4\" height=\"4\" fill=\"#fff\"/>"
    "<rect width=\"2\" height=\"4\" fill=\"#333\"/></pattern></defs>\n";

}  // namespace adjoint
