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

double text_width(std::string_view text, double size, bool bold) {
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
  return em * size * (bold ? 1.06 : 1);
}

std::vector<std::string> wrapped(std::string_view text, double size, double width, bool bold) {
  const auto fits = [&](const std::string& line) { return text_width(line, size, bold) <= width; };
  std::vector<std::string> lines;
  std::string line;
  const auto next_line = [&] {
    if (!line.empty()) lines.push_back(std::move(line));
    line.clear();
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!line.empty() && !fits(line + " " + word)) next_line();
    if (!line.empty()) line += " ";
    if (fits(line + word)) {
      line += word;
      continue;
    }
    for (size_t i = 0; i < word.size();) {  // a word that no line has room for
      const size_t bytes = std::max<size_t>(character(word, i), 1);
      if (!line.empty() && !fits(line + word.substr(i, bytes))) next_line();
      line += word.substr(i, bytes);
      i += bytes;
    }
  }
  next_line();
  return lines;
}

std::string stack_in_short(std::string_view stack) {
  constexpr size_t kLongest = 32;  // of what a functor is told
  std::string out;
  for (size_t i = 0; i < stack.size();) {
    if (stack[i] != '(') {
      out += stack[i++];
      continue;
    }
    size_t end = i;
    for (int depth = 0; end < stack.size(); ++end) {
      depth += stack[end] == '(' ? 1 : stack[end] == ')' ? -1 : 0;
      if (depth == 0) break;
    }
    const std::string_view told = stack.substr(i, end + 1 - i);
    out += told.size() > kLongest + 2 ? "(...)" : told;
    i += told.size();
  }
  return out;
}

Svg::Svg(double width, double height, std::string_view title, std::string_view description) {
  head_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" font-family=\"Helvetica, Arial, 'Liberation Sans', "
      "sans-serif\">\n<title>{2}</title>\n<desc>{3}</desc>\n{4}{5}",
      short_number(width), short_number(height), xml_escape(title), xml_escape(description),
      picture_style(), hatches());
  rect(0, 0, width, height, filled(Tone::kPaper));
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
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" {}", short_number(x),
                       short_number(y), short_number(style.size),
                       style.over ? fill_of_text_over(style.tone) : filled(style.tone));
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

double Svg::text(double x, double y, const std::vector<std::string>& lines, double line_height,
                 const TextStyle& style, std::string_view hint) {
  for (const std::string& line : lines) {
    text(x, y, line, style, hint);
    y += line_height;
  }
  return y;
}

std::string Svg::str() const { return head_ + body_ + "</svg>\n"; }

}  // namespace adjoint
