// A small SVG writer. It escapes text, keeps numbers short, and uses only what browsers and
// converters for print understand. Written by hand, because the charts need five elements. Colours
// are those of the palette, so every picture can be read on dark paper, too.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/palette.h"

namespace adjoint {

// Escapes &, <, > and quotes; what XML cannot represent (control characters, invalid UTF-8) becomes
// U+FFFD.
std::string xml_escape(std::string_view text);
// At most two decimals, no trailing zeros: 3, 3.5, 0.25.
std::string short_number(double number);

// An estimate of a text's width in pixels, rather too wide, because fonts differ.
double text_width(std::string_view text, double size, bool bold = false);
// The text in lines that are no wider than `width`, broken at spaces; a longer word is broken where
// it must be. No text: no lines.
std::vector<std::string> wrapped(std::string_view text, double size, double width,
                                 bool bold = false);
// A stack for a caption: what a functor is told is left out where it is long, as in reside(...).
std::string stack_in_short(std::string_view stack);

enum class Anchor : uint8_t { kStart, kMiddle, kEnd };

struct TextStyle {
  double size = 12;
  Anchor anchor = Anchor::kStart;
  Tone tone = Tone::kInk;
  bool over = false;  // written upon an area of that tone, in black or white
  bool bold = false;
  double turned = 0;  // degrees
};

class Svg {
 public:
  Svg(double width, double height, std::string_view title, std::string_view description);

  // `style` is attributes of the element, such as filled(Tone::kCard). `hint` is shown under the
  // pointer.
  void rect(double x, double y, double width, double height, std::string_view style,
            std::string_view hint = "");
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  void circle(double x, double y, double radius, std::string_view style,
              std::string_view hint = "");
  void path(std::string_view commands, std::string_view style, std::string_view hint = "");
  void text(double x, double y, std::string_view text, const TextStyle& style,
            std::string_view hint = "");
  // Lines below each other; returns the baseline of the one that would follow.
  double text(double x, double y, const std::vector<std::string>& lines, double line_height,
              const TextStyle& style, std::string_view hint = "");
  void raw(std::string_view element) { body_ += element; }  // definitions, groups
  std::string str() const;

 private:
  void close(std::string_view name, std::string_view hint);
  std::string head_, body_;
};

}  // namespace adjoint
