package roce

// The rules of a reliable connection on a bad network, and the tests that check each. All run on
// a simulated network in virtual time (package simnet).
//
// Packets lost, delayed and duplicated
//
//   - each packet of each operation, at each place of a message, in both directions, with a peer of
//     our kind and of another: TestMishapToEachPacket; of SENDs in packets longer than the path MTU:
//     TestMishapToLongSend; of WRITEs and READs in longer packets: TestMishapToLongData; of a WRITE that
//     carries the SEND behind it: TestMishapToWriteSend; of messages that carry acknowledgements:
//     TestMishapToAckAlong
//   - all at once, at random: TestUnreliableNetwork, TestHistories
//   - no mishap, and nothing is sent twice: TestNoNeedlessRetry
//   - goodput under loss: TestLossIsSurvivable; between busy hosts: TestLossIsSurvivableWhenBusy
//
// Acknowledgements (IBTA 9.7.5, 9.7.7)
//
//   - one for a batch, none if none is asked for, never before a READ's data:
//     TestResponderSequence
//   - who asks for one: TestWhoAsksForAck, TestAsksWithinWindow
//   - ghost ACKs and NAKs, for nothing outstanding: TestDroppedSilently, TestAcknowledgements,
//     TestAcknowledgementsOfOurs (also selective ones)
//   - implied by a later ACK or answer, and an implied NAK: TestAcknowledgements,
//     TestAcknowledgementsOfOurs, TestPartialReadRetry
//   - NAKs for several PSNs, and for one PSN repeatedly: TestSequenceErrors
//   - a lost NAK: TestLostNAK (at each place, also RNR and selective ones), TestResponderSequence
//     ("another NAK …"), TestAcknowledgements; one that refuses a request: TestLostFatalNAK
//   - selective ones, between two devices of our kind: TestSelectiveResponder, TestSelectiveRequester
//   - carried by requests, also between two devices of our kind: TestAckGoesAlong, TestAckAlongIsTaken,
//     TestAckAlongNeedsConsent; never before a READ's data: TestAckAlongOvertakesNoAnswer
//
// Receiver not ready
//
//   - until a receive is posted: TestReceiverNotReady; up to the limit: TestRNRRetryCount,
//     which applies to each message separately: TestCountsBeginAnew
//   - the responder's side: TestResponderSequence ("RNR NAK …"), TestSelectiveResponder
//
// Room for packets and answers, which queue pairs share: TestLongPacketHasItsTurn, TestLargeReadHasItsTurn,
// TestSlowPeerLeavesReads, TestDeadPeerLeavesHeld; in batches: TestSendsLeaveBesideWrites. Waiting for
// room doesn't count as a retry: TestWaitForRoomIsNoRetry.
//
// Giving up
//
//   - retries exhausted: TestSilentPeer, TestSequenceErrorsWithoutEnd; never by several messages together:
//     TestCountsBeginAnew; never without a timeout: TestNoTimeout
//   - others continue meanwhile, to other peers and to the same one: TestSilentPeerLeavesReads, TestSilentQPsLeaveWindow
//   - nobody gives up after a shorter outage: TestSilenceEnds, TestSilentGoesOn, TestCrowdAfterOutage,
//     TestCrowdAfterLongOutage
//   - one direction cut: TestAsymmetricCut
//
// Round trips longer than the first timeout: TestFarPeer, TestTimeoutAfterRetry, TestFarPeerOpensWindow, TestLateOrLost;
// that become longer: TestPeerMovesAway; losses before any is known: TestLossesBeforeSample.
//
// Repeated READs and atomics (IBTA 9.7.5.1.4)
//
//   - whole, in part, not otherwise, with an invalid key: TestReadReplay; executed once: TestAtomics, TestAtomicReplay
//   - answers that haven't been sent: TestAnswersTakenBack, TestRepetitionsTakeNoPlace
//   - of a large READ, no more than a piece: TestReadIsCut, TestReadStep
//   - more than agreed: TestTooManyReads, TestNoReadsAgreed
//
// PSNs wrap around: TestMishapToEachPacket begins at 0xfffff0, TestOperations at 0xfffffd, TestHistories near there.
//
// Teardown under traffic: TestTearDownUnderLoad, TestDestroyLeavesNothing, TestFlush, TestRoomOfWhoEnds. Memory that is
// being sent when a window or region ends: TestLocalInvWaitsForAnswer, TestWindowEndsAfterAnswer,
// TestDeregWaitsForAnswer; or when a request is complete: TestRepetitionLeavesFirst.
//
// Errors and their completions
//
//   - each NAK: TestRemoteFaults, TestAcknowledgements, TestAcknowledgementsOfOurs,
//     TestInvalidRequests, TestBadResponses
//   - of the receive in use: TestReceiveFaults; of the requester itself: TestLocalFaults
//   - of the device: TestSocketFails; of the completion queue: TestCompletionQueueOverrun
//
// Congestion: TestCongestion, TestCongestionNotification, TestTrafficClass; the law of the windows: TestWindowGrows,
// TestWindowShrinks, TestFewLossesAreChance, TestSilenceClosesWindow, TestSilenceWasLate; their bounds:
// TestWindowWithinBound, TestOutstandingFitScoreboard.
//
// Messages of connection management (package cm)
//
//   - lost: TestLoss, TestLostREJ, TestLostMRA, TestDREQUnanswered, TestConnectTimeout,
//     TestAcceptTimeout, TestMRAWithoutEnd, TestCommEst (an RTU)
//   - duplicated and delayed: TestDuplication, TestDelay, TestDuplicateREQ, TestRepeatedREJ
//   - crossing: TestCrossedREQs, TestCrossedDREQs, TestREJCrossesREP, TestREPTakenBack, TestDREQOvertakesRTU,
//     TestPeerGivesUp
//   - stale: TestStaleREQ, TestStaleREP, TestStaleMessages, TestUnknownREP, TestDREQChecks
//   - any of these at random: TestMetamorphic
