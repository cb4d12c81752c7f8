from lmassay_hedging import Hedging

from lmassay.testing import check_method


def test_it_holds_to_the_contract():
    check_method(Hedging)
