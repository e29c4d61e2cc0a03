// the tests compile nothing
