// Choices at compile time: one of two types, and a number as a type.
#pragma once

template <bool Yes, class Then, class Else>
struct Choice {
    using Type = Then;
};
template <class Then, class Else>
struct Choice<false, Then, Else> {
    using Type = Else;
};
template <bool Yes, class Then, class Else>
using Either = typename Choice<Yes, Then, Else>::Type;

template <int Value>
struct Constant {
    static constexpr int value = Value;
};
