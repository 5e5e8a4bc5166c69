#include "train/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/file.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

TEST(EventFile, ChecksumsAreCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);            // the published check
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
}

// Reads records and fields as the format says, without what wrote them.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return at_ == bytes_.size(); }
  std::string_view take(size_t size) {
    CHECK(size <= bytes_.size() - at_, "the file goes on");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = number<uint8_t>();
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string_view record() {
    const std::string_view length = take(8);
    check(length);
    uint64_t size = 0;
    std::memcpy(&size, length.data(), 8);
    const std::string_view event = take(size);
    check(event);
    return event;
  }

 private:
  void check(std::string_view bytes) {
    const uint32_t crc = crc32c(bytes);
    EXPECT_EQ(number<uint32_t>(), ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
  }
  std::string_view bytes_;
  size_t at_ = 0;
};

struct Event {
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> numbers;
};

Event event_of(std::string_view bytes) {
  Event event;
  for (Reader fields(bytes); !fields.done();) {
    switch (fields.varint()) {
      case 1 << 3 | 1:
        EXPECT_GT(fields.number<double>(), 1e9);
        break;
      case 2 << 3:
        event.step = static_cast<int64_t>(fields.varint());
        break;
      case 3 << 3 | 2:
        event.version = fields.take(fields.varint());
        break;
      case 5 << 3 | 2:
        for (Reader values(fields.take(fields.varint())); !values.done();) {
          EXPECT_EQ(values.varint(), 1 << 3 | 2);
          Reader value(values.take(values.varint()));
          EXPECT_EQ(value.varint(), 1 << 3 | 2);
          const std::string name(value.take(value.varint()));
          EXPECT_EQ(value.varint(), 2 << 3 | 5);
          event.numbers[name] = value.number<float>();
          EXPECT_TRUE(value.done());
        }
        break;
      default:
        ADD_FAILURE() << "an unknown field";
        return event;
    }
  }
  return event;
}

std::vector<Event> events_in(const fs::path& folder) {
  std::vector<Event> events;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("events.out.tfevents.")) continue;
    const std::string bytes = read_file(entry.path());
    for (Reader records(bytes); !records.done();) events.push_back(event_of(records.record()));
  }
  return events;
}

// The numbers of metrics.jsonl, as float32.
TEST_F(TrainFolder, TensorBoardReadsTheMetrics) {
  train(options("run", {{"tensorboard", true}}));
  const std::vector<Event> events = events_in(out("run"));
  ASSERT_EQ(events.size(), 8);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  std::ifstream in(out("run") / "metrics.jsonl");
  for (size_t i = 1; i < events.size(); ++i) {
    std::string line;
    ASSERT_TRUE(std::getline(in, line));
    const json wanted = json::parse(line);
    EXPECT_EQ(events[i].step, wanted["step"]);
    EXPECT_EQ(events[i].numbers.size(), wanted.size() - 1);
    for (const auto& [name, number] : events[i].numbers) {
      EXPECT_EQ(number, wanted[name].get<float>()) << name;
    }
  }
}

}  // namespace
}  // namespace adjoint
