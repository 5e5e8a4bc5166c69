#include "data/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "data/unicode.h"

namespace adjoint {

namespace {

size_t blanks_before(std::string_view text, size_t begin, size_t least) {
  const UnicodeClasses& classes = UnicodeClasses::all();
  while (begin > least) {
    size_t lead = begin - 1;
    while (lead > least && (static_cast<unsigned char>(text[lead]) & 0xC0) == 0x80) --lead;
    const ClassedPoint point = classed_point_at(classes, text, lead);
    if (!(point.classes & kWhiteSpace) || lead + point.size != begin) break;
    begin = lead;
  }
  return begin;
}

size_t blanks_behind(std::string_view text, size_t end) {
  const UnicodeClasses& classes = UnicodeClasses::all();
  while (end < text.size()) {
    const ClassedPoint point = classed_point_at(classes, text, end);
    if (!(point.classes & kWhiteSpace)) break;
    end += point.size;
  }
  return end;
}

}  // namespace

AddedFinder::AddedFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    CHECK(!tokens_[i].content.empty(), "an added token is empty");
    starts_[static_cast<unsigned char>(tokens_[i].content[0])].push_back(i);
    if (!tokens_[i].special) all_special_ = false;
  }
}

const AddedToken* AddedFinder::token_at(std::string_view text, size_t at) const {
  for (const size_t i : starts_[static_cast<unsigned char>(text[at])]) {
    if (text.substr(at).starts_with(tokens_[i].content)) return &tokens_[i];
  }
  return nullptr;
}

void AddedFinder::for_each_part(std::string_view text, bool with_specials,
                                const Visit& visit) const {
  size_t done = 0;
  const bool any = !tokens_.empty() && (with_specials || !all_special_);
  for (size_t at = 0; any && at < text.size();) {
    const AddedToken* const token = token_at(text, at);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->special && !with_specials) continue;
    if (token->takes_blanks_before) begin = blanks_before(text, begin, done);
    if (token->takes_blanks_behind) at = end = blanks_behind(text, end);
    if (begin > done) visit(text.substr(done, begin - done), done, nullptr);
    visit({}, begin, token);
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), done, nullptr);
}

}  // namespace adjoint
