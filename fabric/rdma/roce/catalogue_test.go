package roce

// The rules of a reliable connection on a bad network, and the tests that show each. All run on
// a simulated network in virtual time (package simnet).
//
// Packets lost, late and repeated
//
//   - each packet of each operation, at each place of a message, in both directions, with a peer of
//     our kind and of another: TestMishapToEachPacket; of SENDs in packets longer than the path MTU:
//     TestMishapToLongSend; of WRITEs and READs in such: TestMishapToLongData; of a WRITE with the SEND
//     behind it: TestMishapToWriteSend; of messages with acknowledgements: TestMishapToAckAlong
//   - all at once, at random: TestUnreliableNetwork, TestHistories
//   - none, and nothing is sent twice: TestNoNeedlessRetry
//   - goodput under loss: TestLossIsSurvivable, and between busy hosts: TestLossIsSurvivableWhenBusy
//
// Acknowledgements (IBTA 9.7.5, 9.7.7)
//
//   - one for a batch, none where none is asked for, never before a READ's data:
//     TestResponderSequence
//   - ghost ACKs and NAKs, of nothing outstanding: TestDroppedSilently, TestAcknowledgements,
//     TestAcknowledgementsOfOurs (also selective ones)
//   - implied ones, by a later ACK or answer, and an implied NAK: TestAcknowledgements,
//     TestAcknowledgementsOfOurs, TestPartialReadRetry
//   - NAKs of several PSNs, and of one again: TestSequenceErrors
//   - lost NAK: TestLostNAK (at each place, also RNR and selective ones), TestResponderSequence
//     ("another NAK …"), TestAcknowledgements; one that refuses a request: TestLostFatalNAK
//   - selective ones, between two of our kind: TestSelectiveResponder, TestSelectiveRequester
//   - along with requests, also between two of our kind: TestAckGoesAlong, TestAckAlongIsTaken,
//     TestAckAlongNeedsConsent; never before a READ's data: TestAckAlongOvertakesNoAnswer
//
// Receiver not ready
//
//   - until a receive is posted: TestReceiverNotReady; up to the limit: TestRNRRetryCount, which
//     each message has for itself: TestCountsBeginAnew
//   - the responder's side: TestResponderSequence ("RNR NAK …"), TestSelectiveResponder
//
// Room for packets and answers, which queue pairs share: TestLongPacketHasItsTurn, TestLargeReadHasItsTurn,
// TestSlowPeerLeavesReads, TestDeadPeerLeavesHeld; in batches: TestSendsLeaveBesideWrites. Waiting for it
// counts as no retry: TestWaitForRoomIsNoRetry.
//
// Giving up
//
//   - retries exhausted: TestSilentPeer, TestSequenceErrorsWithoutEnd; not by several messages together: TestCountsBeginAnew;
//     never, without a timeout: TestNoTimeout
//   - others go on meanwhile, to other peers and to the same: TestSilentPeerLeavesReads, TestSilentQPsLeaveWindow
//   - nobody does after an outage that is shorter: TestSilenceEnds, TestSilentGoesOn, TestCrowdAfterOutage,
//     TestCrowdAfterLongOutage
//   - one way cut: TestAsymmetricCut
//
// Repeated READs and atomics (IBTA 9.7.5.1.4)
//
//   - whole, in part, not otherwise, with a dead key: TestReadReplay; once executed: TestAtomics, TestAtomicReplay
//   - answers that haven't left: TestAnswersTakenBack, TestRepetitionsTakeNoPlace
//   - more than agreed on: TestTooManyReads, TestNoReadsAgreed
//
// PSNs wrap: TestMishapToEachPacket begins at 0xfffff0, TestOperations at 0xfffffd, TestHistories
// close to there.
//
// Torn down under traffic: TestTearDownUnderLoad, TestDestroyLeavesNothing, TestFlush, TestRoomOfWhoEnds.
//
// Errors and the completions that they give
//
//   - each NAK: TestRemoteFaults, TestAcknowledgements, TestAcknowledgementsOfOurs,
//     TestInvalidRequests, TestBadResponses
//   - of the receive in use: TestReceiveFaults; of the requester's own: TestLocalFaults
//   - of the device: TestSocketFails; of the completion queue: TestCompletionQueueOverrun
//
// Congestion: TestCongestion, TestCongestionNotification, TestTrafficClass.
//
// Messages of connection management (package cm)
//
//   - lost: TestLoss, TestLostREJ, TestLostMRA, TestDREQUnanswered, TestConnectTimeout,
//     TestAcceptTimeout, TestMRAWithoutEnd, TestCommEst (an RTU)
//   - repeated and late: TestDuplication, TestDelay, TestDuplicateREQ, TestRepeatedREJ
//   - crossed: TestCrossedREQs, TestCrossedDREQs, TestREJCrossesREP, TestREPTakenBack, TestDREQOvertakesRTU,
//     TestPeerGivesUp
//   - stale: TestStaleREQ, TestStaleREP, TestStaleMessages, TestUnknownREP, TestDREQChecks
//   - any of it at random: TestMetamorphic
