// The words of a picture and the room that they take, read off its SVG: for tests that no two
// overlap and none leaves the picture. Widths are estimates that are rather too wide (text_width).
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "report/svg.h"

namespace adjoint {

struct DrawnText {
  std::string words;
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  bool overlaps(const DrawnText& o) const {
    constexpr double kTouch = 0.5;
    return x0 + kTouch < o.x1 && o.x0 + kTouch < x1 && y0 + kTouch < o.y1 && o.y0 + kTouch < y1;
  }
};

// "" where an element has no such attribute.
inline std::string attribute_of(const std::string& element, const std::string& name) {
  const std::string begins = " " + name + "=\"";
  const size_t at = element.find(begins);
  if (at == std::string::npos) return "";
  const size_t from = at + begins.size();
  return element.substr(from, element.find('"', from) - from);
}

inline std::vector<DrawnText> drawn_texts(const std::string& svg) {
  std::vector<DrawnText> found;
  for (size_t at = svg.find("<text"); at != std::string::npos; at = svg.find("<text", at + 1)) {
    const size_t open = svg.find('>', at);
    const std::string element = svg.substr(at, open - at);
    std::string words = svg.substr(open + 1, svg.find('<', open + 1) - open - 1);
    for (const auto& [name, character] :
         {std::pair{"&lt;", "<"}, std::pair{"&gt;", ">"}, std::pair{"&quot;", "\""},
          std::pair{"&#39;", "'"}, std::pair{"&amp;", "&"}}) {
      for (size_t i = words.find(name); i != std::string::npos; i = words.find(name, i + 1)) {
        words.replace(i, std::string(name).size(), character);
      }
    }
    const double x = std::stod(attribute_of(element, "x")),
                 y = std::stod(attribute_of(element, "y"));
    const double size = std::stod(attribute_of(element, "font-size"));
    const double wide = text_width(words, size, !attribute_of(element, "font-weight").empty());
    const std::string anchor = attribute_of(element, "text-anchor");
    const double before = anchor == "end" ? wide : anchor == "middle" ? wide / 2 : 0;
    // Letters reach up by three quarters of the size and down by a fifth.
    DrawnText text{words, x - before, y - 0.75 * size, x - before + wide, y + 0.2 * size};
    if (attribute_of(element, "transform").starts_with("rotate(-90")) {
      text = {words, x - 0.75 * size, y - wide + before, x + 0.2 * size, y + before};
    }
    found.push_back(text);
  }
  return found;
}

// What is wrong with the words of a picture; "" if nothing is.
inline std::string text_mistake(const std::string& svg) {
  const std::string head = svg.substr(0, svg.find('>'));
  const double width = std::stod(attribute_of(head, "width")),
               height = std::stod(attribute_of(head, "height"));
  const std::vector<DrawnText> texts = drawn_texts(svg);
  if (texts.empty()) return "there are no words";
  for (size_t i = 0; i < texts.size(); ++i) {
    const DrawnText& t = texts[i];
    if (t.x0 < 0 || t.y0 < 0 || t.x1 > width || t.y1 > height) {
      return "'" + t.words + "' leaves the picture";
    }
    for (size_t k = 0; k < i; ++k) {
      if (t.overlaps(texts[k])) return "'" + texts[k].words + "' and '" + t.words + "' overlap";
    }
    if (t.words.find("\u2026") != std::string::npos) return "'" + t.words + "' is cut";
  }
  return "";
}

}  // namespace adjoint
