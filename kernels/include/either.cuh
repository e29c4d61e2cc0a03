// One of two types, chosen at compile time.
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
