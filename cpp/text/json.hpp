// Numbers of a JSON object, read into arrays in one pass.
//
// Bodies of requests come from anywhere. A general parser makes an object of every number, which
// takes up to twenty times the memory of the text; here a number takes the bytes of its element.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace l2route::json {

inline constexpr int kMaxDepth = 64;

// Text that is no JSON, or JSON of another form than the one expected.
struct Refused {
  bool is_json;
  std::string what;
};

// Rows of numbers, all of one length; or numbers that are not in rows.
template <class T>
struct Numbers {
  std::vector<T> values;
  std::size_t n_rows = 0;
  bool has_rows = false;
};

struct Field {
  std::string name;
  Numbers<float> floats;
  Numbers<std::int64_t> integers;
};

class Parser {
 public:
  Parser(std::string_view text, const std::vector<std::string>& floats,
         const std::vector<std::string>& integers, const std::string& texts, std::size_t most_texts)
      : text_(text),
        float_names_(floats),
        integer_names_(integers),
        texts_name_(texts),
        most_texts_(most_texts) {}

  // Reads an object. Fields of the given names whose values are lists are read into arrays; all
  // other fields are copied as text.
  void parse() {
    skip_space();
    expect('{');
    rest_.push_back('{');
    skip_space();
    if (peek() == '}') {
      ++at_;
    } else {
      do {
        parse_field();
        skip_space();
      } while (take(','));
      expect('}');
    }
    rest_.push_back('}');
    skip_space();
    if (at_ != text_.size()) no_json("the end");
  }

  std::string rest_;
  std::vector<Field> float_fields_, integer_fields_;
  std::vector<std::int64_t> texts_;  // begin and end of each, quotes included
  bool has_texts_ = false;

 private:
  void parse_field() {
    skip_space();
    const std::size_t begin = at_;
    const std::string name(text_.substr(begin + 1, skip_string() - 2));
    skip_space();
    expect(':');
    skip_space();
    if (peek() == '[' && is_among(name, float_names_)) {
      parse_numbers(name, float_fields_, &Field::floats);
    } else if (peek() == '[' && is_among(name, integer_names_)) {
      parse_numbers(name, integer_fields_, &Field::integers);
    } else if (peek() == '[' && name == texts_name_) {
      parse_texts();
    } else {
      skip_value(0);
      if (rest_.size() > 1) rest_ += ',';
      rest_ += text_.substr(begin, at_ - begin);
    }
  }

  template <class T>
  void parse_numbers(const std::string& name, std::vector<Field>& fields,
                     Numbers<T> Field::* numbers) {
    for (const Field& field : fields) {
      if (field.name == name) refuse(name + " once, got it twice");
    }
    Field& field = fields.emplace_back();
    field.name = name;
    Numbers<T>& read = field.*numbers;
    // As many as there may be: pages that are not written to take no memory.
    read.values.reserve(1 + std::count(text_.begin() + at_, text_.end(), ','));
    expect('[');
    skip_space();
    read.has_rows = peek() == '[';
    if (!read.has_rows) {
      parse_row(name, read.values);
      return;
    }
    std::size_t width = 0;
    do {
      skip_space();
      if (peek() != '[') refuse_value(name + " as rows of numbers");
      ++at_;
      skip_space();
      const std::size_t before = read.values.size();
      parse_row(name, read.values);
      const std::size_t n = read.values.size() - before;
      if (read.n_rows == 0) width = n;
      if (n != width || n == 0) {
        const std::string got = std::to_string(width) + " and " + std::to_string(n);
        refuse(name + " of one length, at least 1, got " + got);
      }
      ++read.n_rows;
      skip_space();
    } while (take(','));
    expect(']');
  }

  // Reads where the texts of a list are.
  void parse_texts() {
    if (has_texts_) refuse(texts_name_ + " once, got it twice");
    has_texts_ = true;
    expect('[');
    skip_space();
    if (take(']')) return;
    do {
      skip_space();
      if (peek() != '"') refuse_value(texts_name_ + " of texts");
      if (texts_.size() >= 2 * most_texts_) {
        refuse("at most " + std::to_string(most_texts_) + " " + texts_name_ + ", got more");
      }
      texts_.push_back(static_cast<std::int64_t>(at_));
      skip_string();
      texts_.push_back(static_cast<std::int64_t>(at_));
      skip_space();
    } while (take(','));
    expect(']');
  }

  // Reads numbers up to the end of a list whose bracket was read.
  template <class T>
  void parse_row(const std::string& name, std::vector<T>& values) {
    skip_space();
    if (take(']')) return;
    do {
      skip_space();
      values.push_back(parse_number<T>(name));
      skip_space();
    } while (take(','));
    expect(']');
  }

  template <class T>
  T parse_number(const std::string& name) {
    const std::size_t begin = at_;
    const char first = peek();
    if (first != '-' && !is_digit(first)) refuse_value(name + " of numbers");
    const bool is_whole = skip_number();
    const char* text = text_.data() + begin;
    if constexpr (std::is_same_v<T, std::int64_t>) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text, text_.data() + at_, value);
      if (!is_whole || error != std::errc() || end != text_.data() + at_) {
        refuse(name + " of whole numbers of 64 bits, got " + shown(begin));
      }
      return value;
    } else {
      return static_cast<T>(std::strtod(text, nullptr));  // the text ends with a zero byte
    }
  }

  // Skips a number by the grammar of JSON; returns whether it is whole.
  bool skip_number() {
    take('-');
    if (!take('0')) skip_digits();
    bool is_whole = true;
    if (take('.')) {
      is_whole = false;
      skip_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      is_whole = false;
      ++at_;
      if (!take('+')) take('-');
      skip_digits();
    }
    return is_whole;
  }

  void skip_digits() {
    if (!is_digit(peek())) no_json("a digit");
    while (is_digit(peek())) ++at_;
  }

  // Skips a string with its quotes, and returns its length. Escapes are checked by who reads it.
  std::size_t skip_string() {
    const std::size_t begin = at_;
    expect('"');
    while (peek() != '"') {
      if (at_ >= text_.size()) no_json("the end of a string");
      if (static_cast<unsigned char>(peek()) < 0x20) no_json("a string");
      at_ += peek() == '\\' ? 2 : 1;
    }
    ++at_;
    return at_ - begin;
  }

  void skip_value(int depth) {
    if (depth > kMaxDepth) refuse("at most " + std::to_string(kMaxDepth) + " levels, got more");
    skip_space();
    const char first = peek();
    if (first == '{' || first == '[') {
      skip_list(first == '{' ? '}' : ']', depth);
    } else if (first == '"') {
      skip_string();
    } else if (first == '-' || is_digit(first)) {
      skip_number();
    } else if (!take_word("true") && !take_word("false") && !take_word("null")) {
      no_json("a value");
    }
  }

  void skip_list(char last, int depth) {
    ++at_;
    skip_space();
    if (take(last)) return;
    do {
      if (last == '}') {
        skip_space();
        skip_string();
        skip_space();
        expect(':');
      }
      skip_value(depth + 1);
      skip_space();
    } while (take(','));
    expect(last);
  }

  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) no_json(std::string("'") + wanted + "'");
  }

  static bool is_digit(char each) { return each >= '0' && each <= '9'; }

  static bool is_among(const std::string& name, const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  // The text at a place, as far as it is worth showing.
  std::string shown(std::size_t begin) const {
    std::string found;
    for (const char each : text_.substr(begin, 20)) {
      found += each >= ' ' && each <= '~' ? each : '?';
    }
    return found.empty() ? "the end" : "'" + found + "' at byte " + std::to_string(begin);
  }

  // A value that is JSON but not what was expected, unless it is no JSON at all.
  [[noreturn]] void refuse_value(const std::string& expected) {
    const std::size_t begin = at_;
    skip_value(0);
    refuse(expected + ", got " + shown(begin));
  }

  [[noreturn]] static void refuse(const std::string& what) { throw Refused{true, what}; }

  [[noreturn]] void no_json(const std::string& expected) const {
    throw Refused{false, "JSON with " + expected + ", got " + shown(at_)};
  }

  std::string_view text_;
  const std::vector<std::string>& float_names_;
  const std::vector<std::string>& integer_names_;
  const std::string& texts_name_;
  std::size_t most_texts_;
  std::size_t at_ = 0;
};

}  // namespace l2route::json
