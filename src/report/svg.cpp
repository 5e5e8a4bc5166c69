#include "report/svg.h"

#include <fmt/format.h>

#include <cmath>

namespace adjoint {

namespace {

// Bytes of the UTF-8 character that begins here, 0 if none does.
size_t character(std::string_view text, size_t i) {
  const auto at = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char c = at(i);
  const size_t size = c < 0x80         ? 1
                      : (c >> 5) == 6  ? 2
                      : (c >> 4) == 14 ? 3
                      : (c >> 3) == 30 ? 4
                                       : 0;
  if (size == 0 || i + size > text.size()) return 0;
  uint32_t code = size == 1 ? c : c & (0x7fu >> size);
  for (size_t k = 1; k < size; ++k) {
    if ((at(i + k) >> 6) != 2) return 0;
    code = code << 6 | (at(i + k) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  const bool banned = code == 0xfffe || code == 0xffff || code > 0x10ffff;
  return code < kLeast[size] || surrogate || banned ? 0 : size;
}

}  // namespace

std::string xml_escape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t size = character(text, i);
    if (size != 1) {
      out += size ? text.substr(i, size) : "\xef\xbf\xbd";
      i += std::max<size_t>(size, 1);
      continue;
    }
    ++i;
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n') {
      out += "\xef\xbf\xbd";
    } else {
      out += c;
    }
  }
  return out;
}

std::string short_number(double number) {
  if (!std::isfinite(number)) number = 0;
  std::string out = fmt::format("{:.2f}", number);
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

double text_width(std::string_view text, double size) {
  double em = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >> 6) == 2) continue;  // continues a character
    constexpr std::string_view narrow = " .,:;|!'()[]ijltfrI";
    em += narrow.find(c) != std::string_view::npos ? 0.36
          : c == 'm' || c == 'w' || c == 'M'       ? 0.95
          : c >= 'A' && c <= 'Z'                   ? 0.7
                                                   : 0.6;
  }
  return em * size;
}

std::string fitted(std::string_view text, double size, double width) {
  if (text_width(text, size) <= width) return std::string(text);
  while (!text.empty() && text_width(text, size) + 0.8 * size > width) {
    text.remove_suffix(1);
    while (!text.empty() && (static_cast<unsigned char>(text.back()) >> 6) == 2) {
      text.remove_suffix(1);
    }
    // The first byte of a cut character is removed, too.
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xc0) text.remove_suffix(1);
  }
  return std::string(text) + "\xe2\x80\xa6";
}

Svg::Svg(double width, double height, std::string_view title, std::string_view description) {
  head_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" font-family=\"Helvetica, Arial, 'Liberation Sans', "
      "sans-serif\">\n<title>{2}</title>\n<desc>{3}</desc>\n",
      short_number(width), short_number(height), xml_escape(title), xml_escape(description));
  rect(0, 0, width, height, "fill=\"#fff\"");
}

void Svg::close(std::string_view name, std::string_view hint) {
  body_ += hint.empty() ? "/>\n" : fmt::format("><title>{}</title></{}>\n", xml_escape(hint), name);
}

void Svg::rect(double x, double y, double width, double height, std::string_view style,
               std::string_view hint) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}", short_number(x),
                       short_number(y), short_number(width), short_number(height), style);
  close("rect", hint);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  body_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {}/>\n", short_number(x1),
                       short_number(y1), short_number(x2), short_number(y2), style);
}

void Svg::circle(double x, double y, double radius, std::string_view style, std::string_view hint) {
  body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" {}", short_number(x), short_number(y),
                       short_number(radius), style);
  close("circle", hint);
}

void Svg::path(std::string_view commands, std::string_view style, std::string_view hint) {
  body_ += fmt::format("<path d=\"{}\" {}", commands, style);
  close("path", hint);
}

void Svg::text(double x, double y, std::string_view text, const TextStyle& style,
               std::string_view hint) {
  constexpr std::string_view anchors[] = {"start", "middle", "end"};
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"", short_number(x),
                       short_number(y), short_number(style.size), style.fill);
  if (style.anchor != Anchor::kStart) {
    body_ += fmt::format(" text-anchor=\"{}\"", anchors[static_cast<size_t>(style.anchor)]);
  }
  if (style.bold) body_ += " font-weight=\"bold\"";
  if (style.turned != 0) {
    body_ += fmt::format(" transform=\"rotate({} {} {})\"", short_number(style.turned),
                         short_number(x), short_number(y));
  }
  body_ += ">" + xml_escape(text);
  if (!hint.empty()) body_ += "<title>" + xml_escape(hint) + "</title>";
  body_ += "</text>\n";
}

std::string Svg::str() const { return head_ + body_ + "</svg>\n"; }

}  // namespace adjoint
