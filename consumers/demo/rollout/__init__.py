"""`millstream demo --rollout`: a better version takes over by itself, and a broken one is rolled back by itself."""
