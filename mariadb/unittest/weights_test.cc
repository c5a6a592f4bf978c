/* Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */

#include "weights.h"

#include <random>
#include <string>
#include <vector>

#include "bytes.h"
#include "check.h"

using namespace frond;
using Text= std::vector<unsigned char>;

namespace {

struct Alphabet
{
  Weight_unit unit;
  std::vector<Text> units;
};

int sign(int value) { return value < 0 ? -1 : value > 0; }

/* The definition that the encoding has to meet. */
int compare(const Text &a, const Text &b, const Weight_unit &unit, bool padded)
{
  for (size_t at= 0; at < a.size() || at < b.size(); at+= unit.width)
  {
    if (!padded && (at >= a.size() || at >= b.size()))
      return at >= a.size() ? -1 : 1;
    const unsigned char *unit_a= at < a.size() ? &a[at] : unit.space;
    const unsigned char *unit_b= at < b.size() ? &b[at] : unit.space;
    if (int result= memcmp(unit_a, unit_b, unit.width))
      return sign(result);
  }
  return 0;
}

std::string encode(const Text &text, const Weight_unit &unit, bool padded)
{
  std::string out(weights_length_max(text.size(), unit), '\0');
  auto *to= reinterpret_cast<unsigned char *>(&out[0]);
  unsigned char *end= padded ? put_padded(to, text.data(), text.size(), unit)
                             : put_exact(to, text.data(), text.size(), unit.width);
  CHECK(size_t(end - to) <= out.size());
  out.resize(size_t(end - to));
  return out;
}

std::string inverted(std::string text)
{
  for (char &byte : text)
    byte= static_cast<char>(~byte);
  return text;
}

const unsigned char *bytes(const std::string &text)
{
  return reinterpret_cast<const unsigned char *>(text.data());
}

/* Skips the encoding with something behind it, and every shorter piece of it. */
void check_delimited(const std::string &encoded, const Weight_unit &unit, bool padded,
                     unsigned char mask)
{
  auto skip= [&](const std::string &text, size_t size) {
    return padded ? skip_padded(bytes(text), bytes(text) + size, unit, mask)
                  : skip_exact(bytes(text), bytes(text) + size, unit.width, mask);
  };
  std::string followed= encoded + "\x20\x01\x80";
  CHECK(skip(followed, followed.size()) == bytes(followed) + encoded.size());
  for (size_t size= 0; size < encoded.size(); size++)
    CHECK(skip(encoded, size) == nullptr);
}

void check_decoded(const Text &text, const std::string &encoded, const Weight_unit &unit,
                   bool padded, unsigned char mask)
{
  if (unit.width != 1)
    return;
  Text expected= text, back(text.size() + 1);
  while (padded && !expected.empty() && expected.back() == unit.space[0])
    expected.pop_back();
  size_t length= 0;
  const unsigned char *begin= bytes(encoded), *end= begin + encoded.size();
  auto get= [&](size_t room) {
    return padded ? get_padded(begin, end, unit.space[0], mask, back.data(), room, &length)
                  : get_exact(begin, end, mask, back.data(), room, &length);
  };
  CHECK(get(expected.size()) == end);
  CHECK(length == expected.size());
  CHECK(length == 0 || memcmp(back.data(), expected.data(), length) == 0);
  if (!expected.empty())
    CHECK(get(expected.size() - 1) == nullptr);
}

void check_all(const std::vector<Text> &texts, const Weight_unit &unit)
{
  for (bool padded : {false, true})
  {
    std::vector<std::string> encoded;
    for (const Text &text : texts)
    {
      encoded.push_back(encode(text, unit, padded));
      check_delimited(encoded.back(), unit, padded, 0);
      check_delimited(inverted(encoded.back()), unit, padded, 255);
      check_decoded(text, encoded.back(), unit, padded, 0);
      check_decoded(text, inverted(encoded.back()), unit, padded, 255);
    }
    for (size_t i= 0; i < texts.size(); i++)
      for (size_t j= 0; j < texts.size(); j++)
        CHECK(sign(encoded[i].compare(encoded[j])) ==
              compare(texts[i], texts[j], unit, padded));
  }
}

Alphabet alphabet(unsigned width)
{
  if (width == 1)
    return {Weight_unit(), {{0}, {1}, {0x1f}, {0x20}, {0x21}, {0x80}, {0xff}}};
  if (width == 2)
    return {{2, {0x02, 0x09}},
            {{0, 0}, {0x02, 0x08}, {0x02, 0x09}, {0x02, 0x0a}, {0x09, 0x02}, {0xff, 0xff}}};
  return {{3, {0, 0, 0x20}}, {{0, 0, 0}, {0, 0, 0x1f}, {0, 0, 0x20}, {0, 0x20, 0}, {1, 0, 0x20}}};
}

void every_short_text_orders_and_comes_back()
{
  for (unsigned width= 1; width <= 3; width++)
  {
    Alphabet letters= alphabet(width);
    std::vector<Text> texts= {{}};
    for (size_t from= 0, length= 0; length < 3; length++)
      for (size_t to= texts.size(); from < to; from++)
        for (const Text &unit : letters.units)
        {
          Text longer= texts[from];
          longer.insert(longer.end(), unit.begin(), unit.end());
          texts.push_back(longer);
        }
    check_all(texts, letters.unit);
  }
}

void long_runs_of_spaces_order_and_come_back()
{
  std::mt19937 random(7);
  for (unsigned width= 1; width <= 3; width++)
  {
    Alphabet letters= alphabet(width);
    std::vector<Text> texts;
    for (size_t run : {0, 1, 2, 125, 126, 127, 128, 251, 252, 253, 254, 300, 400})
      for (const Text &last : letters.units)
        for (int before= 0; before < 2; before++)
        {
          Text text;
          if (before > 0)
            text= letters.units.back();
          for (size_t i= 0; i < run; i++)
            text.insert(text.end(), letters.unit.space, letters.unit.space + width);
          if (random() % 4 != 0)
            text.insert(text.end(), last.begin(), last.end());
          texts.push_back(text);
        }
    check_all(texts, letters.unit);
  }
}

void text_without_spaces_costs_two_bytes()
{
  Text text= {'f', 'r', 'o', 'n', 'd'};
  CHECK(encode(text, Weight_unit(), true).size() == text.size() + 2);
  CHECK(encode(text, Weight_unit(), false).size() == text.size() + 2);
}

void damaged_markers_are_refused()
{
  for (int marker : {0, 127, 255})
  {
    unsigned char damaged[]= {'a', ' ', static_cast<unsigned char>(marker), 'b', ' ', 128};
    Weight_unit unit;
    unsigned char to[400];
    size_t length;
    CHECK(skip_padded(damaged, damaged + sizeof damaged, unit, 0) == nullptr);
    CHECK(get_padded(damaged, damaged + sizeof damaged, ' ', 0, to, sizeof to, &length) ==
          nullptr);
  }
  unsigned char damaged[]= {'a', 0, 7, 0, 0};
  unsigned char to[400];
  size_t length;
  CHECK(skip_exact(damaged, damaged + sizeof damaged, 1, 0) == nullptr);
  CHECK(get_exact(damaged, damaged + sizeof damaged, 0, to, sizeof to, &length) == nullptr);
}

}  // namespace

int main()
{
  TEST("every short text orders as compared, ends itself and comes back",
       every_short_text_orders_and_comes_back);
  TEST("long runs of spaces order and come back", long_runs_of_spaces_order_and_come_back);
  TEST("text without spaces costs two bytes", text_without_spaces_costs_two_bytes);
  TEST("damaged markers are refused", damaged_markers_are_refused);
  return check::finish();
}
